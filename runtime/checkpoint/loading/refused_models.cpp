#include <kernels/support/check.hpp>
#include <runtime/checkpoint/loading/refused_models.hpp>

#include <algorithm>
#include <cctype>

namespace maniple {
namespace {

struct KnownModel {
  std::string_view key;  // letters and digits that its architecture or model_type begins with
  std::string_view name, lacking;
};

constexpr KnownModel known_models[] = {
    {"deepseekv4", "DeepSeek-V4", "residual streams beside each other, and compressors of attention"},
    {"kimik3", "Kimi-K3", "Kimi delta attention (KDA)"},
    {"kimilinear", "Kimi-Linear", "Kimi delta attention (KDA)"},
    {"glm53", "GLM-5.3", "Kimi delta attention (KDA)"},
    {"mistral4", "Mistral-Large-4", "its router and its attention"},
    {"mistrallarge4", "Mistral-Large-4", "its router and its attention"},
    {"qwen4", "Qwen4-Exp", "residual streams beside each other, and embeddings of n-grams"},
    {"llama4", "Llama 4", "attention in chunks, and layers without rotation"},
    {"nemotronh", "Nemotron-H", "state space layers (Mamba-2)"},
};

constexpr std::string_view layer_inputs = "hidden_size_per_layer_input";

// "Llama4ForCausalLM", "llama4_text" -> "llama4..."
std::string key_of(std::string text) {
  std::erase_if(text, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  std::ranges::transform(text, text.begin(),
                         [](char c) { return std::tolower(static_cast<unsigned char>(c)); });
  return text;
}

std::vector<std::string> keys_of(const JsonFields& config) {
  std::vector<std::string> keys;
  if (const nlohmann::json* names = config.find("architectures"); names && names->is_array())
    for (const nlohmann::json& name : *names)
      if (name.is_string()) keys.push_back(key_of(name.get<std::string>()));
  if (const nlohmann::json* type = config.find("model_type"); type && type->is_string())
    keys.push_back(key_of(type->get<std::string>()));
  return keys;
}

[[noreturn]] void refuse(std::string_view name, std::string_view lacking, std::string_view supported) {
  throw Error(ExitCode::input, fmt::format("{} is not read: maniple lacks {}", name, lacking),
              "without it every token would be another one",
              fmt::format("a model of one of these architectures: {}", supported));
}

}  // namespace

void refuse_known_model(const JsonFields& config, std::string_view supported) {
  for (const std::string& key : keys_of(config)) {
    for (const KnownModel& model : known_models)
      if (key.starts_with(model.key)) refuse(model.name, model.lacking, supported);
    // Absent, it is 256.
    const nlohmann::json* inputs = config.find(layer_inputs);
    if (key.starts_with("gemma4") && !config.is_null(layer_inputs) && !(inputs && *inputs == 0))
      refuse("Gemma 4 E2B or E4B", "inputs of each layer (hidden_size_per_layer_input)", supported);
  }
}

void refuse_mistral_layout(const ModelFiles& files) {
  const std::vector<std::string> weights = files.names(".safetensors");
  const auto is_theirs = [](const std::string& name) { return name.starts_with("consolidated"); };
  const bool theirs = (files.has("params.json") && !files.has("config.json")) ||
                      (!weights.empty() && std::ranges::all_of(weights, is_theirs));
  if (theirs)
    throw Error(
        ExitCode::input,
        fmt::format("{} is in Mistral's own layout (params.json, consolidated weights)", files.where()),
        "maniple reads models in the layout of Hugging Face: config.json and safetensors files with the "
        "names of transformers",
        "download the repository's config.json and model*.safetensors, or a conversion that has them");
}

}  // namespace maniple
