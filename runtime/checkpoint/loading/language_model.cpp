#include <kernels/support/check.hpp>
#include <kernels/support/counted.hpp>
#include <kernels/support/number_text.hpp>
#include <runtime/checkpoint/loading/language_model.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace maniple {
namespace {

using nlohmann::json;

constexpr std::array wrappers = {"Gemma3ForConditionalGeneration", "Gemma4ForConditionalGeneration",
                                 "Mistral3ForConditionalGeneration", "KimiK25ForConditionalGeneration"};

struct TextModel {
  std::string_view type, architecture;
};
constexpr TextModel text_models[] = {
    {"deepseek_v2", "DeepseekV2ForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
    {"deepseek_v32", "DeepseekV32ForCausalLM"},
    {"gemma3_text", "Gemma3ForCausalLM"},
    {"gemma4_text", "Gemma4ForCausalLM"},
    {"glm4_moe", "Glm4MoeForCausalLM"},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM"},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM"},
    {"hy_v3", "HYV3ForCausalLM"},
    {"kimi_k2", "DeepseekV3ForCausalLM"},
    {"llama", "LlamaForCausalLM"},
    {"minimax_m2", "MiniMaxM2ForCausalLM"},
    {"ministral", "MinistralForCausalLM"},
    {"ministral3", "Ministral3ForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"mixtral", "MixtralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"qwen3_moe", "Qwen3MoeForCausalLM"},
};

bool is_wrapper(const JsonFields& config) {
  const json* names = config.find("architectures");
  return names &&
         std::ranges::any_of(wrappers, [&](const char* name) { return *names == json::array({name}); });
}

std::string_view architecture_in(const JsonFields& text_config) {
  const std::string type = text_config.text("model_type");
  std::string known;
  for (const TextModel& model : text_models) {
    if (type == model.type) return model.architecture;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", model.type);
  }
  text_config.refuse("model_type", known);
}

// One id, or a list of them.
json united(const json& outer, const json& inner) {
  json all = json::array();
  for (const json* ids : {&outer, &inner})
    for (const json& id : ids->is_array() ? *ids : json::array({*ids}))
      if (std::ranges::find(all, id) == all.end()) all.push_back(id);
  return all;
}

constexpr std::string_view layer_prefix = "model.layers.";

// Of "model.layers.7.mlp", or -1.
int64_t layer_of(std::string_view name) {
  int64_t layer = -1;
  if (name.starts_with(layer_prefix))
    std::from_chars(name.data() + layer_prefix.size(), name.data() + name.size(), layer);
  return layer;
}

enum Part { language, tower, prediction, indexer, parts };
constexpr std::string_view part_names[] = {"", "a tower for images", "layers that predict further tokens",
                                           "an indexer of sparse attention"};

// Layers of predictions lie behind the model's own: config.json counts them, or their tensors show what they are.
std::set<int64_t> prediction_layers_of(const WeightIndex& index, const ModelConfig& config) {
  std::set<int64_t> layers;
  for (const auto& [stored, tensor] : index.tensors)
    if (const std::string name = plain_name(stored);
        layer_of(name) >= config.num_layers() &&
        (config.prediction_layers > 0 || name.ends_with(".eh_proj.weight")))
      layers.insert(layer_of(name));
  return layers;
}

Part part_of(std::string_view name, const ModelConfig& config, const std::set<int64_t>& prediction_layers) {
  const std::string_view inner = name.substr(name.starts_with("model.") ? 6 : 0);
  for (const char* prefix : {"vision_tower.", "mm_projector.", "visual.", "multi_modal_projector."})
    if (inner.starts_with(prefix)) return tower;
  if (inner.starts_with("mtp.") || prediction_layers.contains(layer_of(name))) return prediction;
  if (config.index_topk > 0 && name.find(".self_attn.indexer.") != name.npos) return indexer;
  return language;
}

}  // namespace

json language_model_config(json config, std::string_view where) {
  const JsonFields outer(config, where);
  if (!outer.find("text_config")) return config;
  const JsonFields inner = outer.object("text_config");
  json merged = config;
  for (const auto& [name, value] : inner.items())
    if (!outer.find(name) || (!value.is_null() && name != "architectures")) merged[name] = value;
  if (outer.find("eos_token_id") && inner.find("eos_token_id"))
    merged["eos_token_id"] = united(*outer.find("eos_token_id"), *inner.find("eos_token_id"));
  if (is_wrapper(outer)) merged["architectures"] = json::array({architecture_in(inner)});
  return merged;
}

void keep_language_model(WeightIndex& index, const ModelConfig& config) {
  struct Sum {
    size_t tensors = 0;
    uint64_t bytes = 0;
  } sums[parts];
  const std::set<int64_t> prediction_layers = prediction_layers_of(index, config);
  for (auto entry = index.tensors.begin(); entry != index.tensors.end();) {
    const auto tensor = entry++;
    std::string name = plain_name(tensor->first);
    if (const Part part = part_of(name, config, prediction_layers); part != language) {
      sums[part].tensors += 1;
      sums[part].bytes += tensor->second.info.byte_size;
      index.tensors.erase(tensor);
    } else if (name != tensor->first) {
      if (index.tensors.contains(name))
        fail(ExitCode::input, "the checkpoint holds {} and {}, which are one tensor of the language model",
             shown(tensor->first), shown(name));
      auto renamed = index.tensors.extract(tensor);
      renamed.key() = std::move(name);
      index.tensors.insert(std::move(renamed));
    }
  }
  for (const Part part : {tower, prediction, indexer})
    if (const auto& [tensors, bytes] = sums[part]; tensors > 0)
      index.left_out += fmt::format("{}{} ({}) of {}", index.left_out.empty() ? "" : ", ",
                                    counted(tensors, "tensor"), bytes_text(bytes), part_names[part]);
}

WeightIndex read_language_model(const ModelFiles& files, const ModelConfig& config) {
  WeightIndex index = read_index(files);
  keep_language_model(index, config);
  return index;
}

}  // namespace maniple
