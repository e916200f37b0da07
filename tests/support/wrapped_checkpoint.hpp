// Rewrites models as multimodal wrappers publish them: under another prefix, beside towers, projectors and layers that predict
// further tokens.
#pragma once

#include <runtime/checkpoint/weight_index.hpp>
#include <support/fused_checkpoint.hpp>
#include <support/safetensors_writer.hpp>

#include <nlohmann/json.hpp>

#include <fstream>

namespace maniple::testing {

struct WrappedNames {
  std::string architecture, model, head;  // "language_model.model.", "language_model.lm_head"
};

// Five tensors of 8 bytes are no part of the language model: two of a tower, three of further predictions.
inline void write_wrapped(const ModelFiles& model, const WrappedNames& names,
                          const std::filesystem::path& to) {
  nlohmann::json config = nlohmann::json::parse(model.text("config.json")), outer;
  std::vector<TensorToWrite> tensors;
  const WeightIndex index = read_index(model);
  for (const auto& [name, tensor] : index.tensors) {
    const std::string stored = name.starts_with("model.")    ? names.model + name.substr(6)
                               : name.starts_with("lm_head") ? names.head + name.substr(7)
                                                             : name;
    tensors.push_back({stored, tensor.info.stored_type, tensor.info.shape, bytes_of(index, name)});
  }
  const std::string layer =
      fmt::format("{}layers.{}.", names.model, config["num_hidden_layers"].get<int64_t>());
  for (const std::string& other :
       {std::string("vision_tower.blocks.0.weight"), std::string("multi_modal_projector.linear_1.weight"),
        layer + "eh_proj.weight", layer + "self_attn.q_proj.weight", std::string("mtp.fc.weight")})
    tensors.push_back({other, "BF16", {2, 2}, std::vector<std::byte>(8)});
  write_safetensors(to / "model.safetensors", tensors);
  config.erase("architectures");
  outer = {
      {"architectures", {names.architecture}}, {"model_type", "wrapper"}, {"vision_config", {{"depth", 1}}}};
  if (config.contains("quantization_config")) {
    outer["quantization_config"] = config["quantization_config"];
    config.erase("quantization_config");
  }
  outer["text_config"] = config;
  std::ofstream(to / "config.json") << outer;
}

inline const std::vector<WrappedNames> wrapped_names = {
    {"Mistral3ForConditionalGeneration", "language_model.model.", "language_model.lm_head"},
    {"Gemma3ForConditionalGeneration", "model.language_model.", "lm_head"}};

}  // namespace maniple::testing
