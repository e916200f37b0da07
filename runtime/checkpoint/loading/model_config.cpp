#include <kernels/support/check.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/loading/language_model.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/refused_models.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/checkpoint/quantization/unexplained.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {

using nlohmann::json;

namespace {

// Whether the layers of an architecture have a bias, or the config's flag decides.
enum class Bias : uint8_t { never, always, by_flag };

enum class Experts : uint8_t { none, qwen, mixtral };

// What a field that config.json lacks means: the defaults of the architecture's config class in transformers 5.2. README.md has the
// table; tests/runtime/checkpoint/config_defaults.py compares it with the classes.
struct Defaults {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads;
  int64_t num_kv_heads;  // 0: as many as heads
  int64_t head_dim;      // 0: hidden_size / num_heads
  int64_t positions;
  double rms_norm_eps, rope_theta;
  int64_t sliding_window;     // 0: none
  int32_t eos_token_id = -1;  // -1: none
};

struct Architecture {
  std::string_view name;
  Bias qkv;
  Bias output;
  Bias mlp;
  bool qk_norm;
  bool window_needs_flag;  // sliding_window counts only where use_sliding_window is true
  Defaults defaults;
  Experts experts = Experts::none;
};

namespace defaults {
constexpr Defaults qwen3{151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6, 1e4, 4096};
constexpr Defaults qwen2{151936, 4096, 22016, 32, 32, 32, 0, 32768, 1e-6, 1e4, 4096};
constexpr Defaults qwen3_moe{151936, 2048, 6144, 24, 32, 4, 0, 32768, 1e-6, 1e4, 4096};
constexpr Defaults llama{32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6, 1e4, 0, 2};
constexpr Defaults mistral{32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-6, 1e4, 4096, 2};
constexpr Defaults mixtral{32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-5, 1e6, 0, 2};
}  // namespace defaults

constexpr Architecture architectures[] = {
    {"Qwen3ForCausalLM", Bias::by_flag, Bias::by_flag, Bias::never, true, true, defaults::qwen3},
    {"LlamaForCausalLM", Bias::by_flag, Bias::by_flag, Bias::by_flag, false, false, defaults::llama},
    {"Qwen2ForCausalLM", Bias::always, Bias::never, Bias::never, false, true, defaults::qwen2},
    {"MistralForCausalLM", Bias::never, Bias::never, Bias::never, false, false, defaults::mistral},
    {"Qwen3MoeForCausalLM", Bias::by_flag, Bias::by_flag, Bias::never, true, true, defaults::qwen3_moe,
     Experts::qwen},
    {"MixtralForCausalLM", Bias::never, Bias::never, Bias::never, false, false, defaults::mixtral,
     Experts::mixtral},
};

// Settings of related models, and the value that leaves the arithmetic as the decoder computes it.
struct Neutral {
  std::string_view name;
  std::optional<double> value;  // none: it must be absent or null
};

constexpr std::string_view expert_counts[] = {"num_experts", "num_local_experts"};  // both mean the same

constexpr Neutral neutrals[] = {
    {"n_routed_experts", 0},
    {"moe_num_experts", 0},
    {"n_shared_experts", 0},
    {"shared_expert_intermediate_size", 0},
    {"compression_config", {}},
    {"partial_rotary_factor", 1},
    {"attention_multiplier", {}},
    {"query_pre_attn_scalar", {}},
    {"attention_chunk_size", {}},
    {"clip_qkv", {}},
    {"logit_scale", 1},
    {"logits_scaling", 1},
    {"residual_multiplier", 1},
    {"embedding_multiplier", 1},
    {"attn_logit_softcapping", {}},
    {"final_logit_softcapping", {}},
};

void check_neutral(const JsonFields& fields, const Neutral& neutral) {
  if (!fields.is_neutral(neutral.name, neutral.value))
    fields.refuse(neutral.name, neutral.value ? fmt::format("{}, or none", *neutral.value) : "none");
}

const Architecture& architecture_of(const JsonFields& fields) {
  const json* names = fields.find("architectures");
  if (names && names->is_array() && names->size() == 1)
    for (const Architecture& candidate : architectures)
      if ((*names)[0] == candidate.name) return candidate;
  std::string supported;
  for (const Architecture& candidate : architectures)
    supported += fmt::format("{}[\"{}\"]", supported.empty() ? "" : ", ", candidate.name);
  refuse_known_model(fields, supported);
  fields.refuse("architectures", supported);
}

bool bias_of(Bias bias, const JsonFields& fields, std::string_view flag) {
  const bool given = fields.boolean_or(flag, false);
  return bias == Bias::always || (bias == Bias::by_flag && given);
}

void set_biases(ModelConfig& config, const Architecture& architecture, const JsonFields& fields) {
  config.qkv_bias = bias_of(architecture.qkv, fields, "attention_bias");
  config.o_bias = bias_of(architecture.output, fields, "attention_bias");
  config.mlp_bias = bias_of(architecture.mlp, fields, "mlp_bias");
  // Implementations disagree on such a flag: some apply it, some ignore it.
  if (fields.boolean_or("attention_bias", false) && !config.qkv_bias)
    fields.refuse("attention_bias", "false for this architecture");
  if (fields.boolean_or("mlp_bias", false) && !config.mlp_bias)
    fields.refuse("mlp_bias", "false for this architecture");
}

void set_sizes(ModelConfig& config, const Defaults& defaults, const JsonFields& fields) {
  // Far above any model, far below what overflows: the largest product of two fits 48 bits.
  constexpr int64_t most = 1 << 24;
  config.hidden_size = fields.integer_or("hidden_size", defaults.hidden_size, 1, most);
  config.intermediate_size = fields.integer_or("intermediate_size", defaults.intermediate_size, 1, most);
  config.num_layers = fields.integer_or("num_hidden_layers", defaults.num_layers, 1, 10'000);
  config.num_heads = fields.integer_or("num_attention_heads", defaults.num_heads, 1, 1 << 16);
  const bool kv_as_heads = defaults.num_kv_heads == 0 || fields.is_null("num_key_value_heads");
  config.num_kv_heads = fields.integer_or(
      "num_key_value_heads", kv_as_heads ? config.num_heads : defaults.num_kv_heads, 1, config.num_heads);
  config.vocab_size = fields.integer_or("vocab_size", defaults.vocab_size, 1, most);
  config.max_position_embeddings =
      fields.integer_or("max_position_embeddings", defaults.positions, 1, 1 << 30);
  config.rms_norm_eps = fields.number_or("rms_norm_eps", defaults.rms_norm_eps, 1e-30, 1.0);
  if (config.num_heads % config.num_kv_heads != 0)
    fields.refuse("num_key_value_heads",
                  fmt::format("a divisor of num_attention_heads ({})", config.num_heads));
  const bool whole_heads = defaults.head_dim == 0 || fields.is_null("head_dim");
  if (whole_heads && !fields.find("head_dim") && config.hidden_size % config.num_heads != 0)
    fields.refuse("head_dim",
                  fmt::format("a number, as hidden_size ({}) is not a multiple of num_attention_heads ({})",
                              config.hidden_size, config.num_heads));
  config.head_dim = fields.integer_or(
      "head_dim", whole_heads ? config.hidden_size / config.num_heads : defaults.head_dim, 2, 1 << 16);
  if (config.head_dim % 2 != 0 || config.head_dim > 1024)  // pairs to rotate; what the kernels have
    fields.refuse("head_dim", fmt::format("even sizes up to 1024 (hidden_size / num_attention_heads is {})",
                                          config.hidden_size / config.num_heads));
}

int64_t expert_count(const ModelConfig& config, const JsonFields& fields, int64_t otherwise) {
  // Far above any model; each is listed with its tensors.
  const int64_t most = std::min<int64_t>(1 << 12, (1 << 17) / config.num_layers);
  const auto& [first, second] = expert_counts;
  if (!fields.find(second)) return fields.integer_or(first, otherwise, 0, most);
  const int64_t count = fields.integer(second, 0, most);
  if (fields.integer_or(first, count, 0, most) != count)
    fields.refuse(first, fmt::format("what {} says ({})", second, count));
  return count;
}

// The defaults are those of transformers.
ExpertsConfig experts_of(const ModelConfig& config, const Architecture& architecture,
                         const JsonFields& fields) {
  const bool mixtral = architecture.experts == Experts::mixtral;
  ExpertsConfig experts;
  experts.names = mixtral ? ExpertNames::mixtral : ExpertNames::qwen;
  experts.count = expert_count(config, fields, mixtral ? 8 : 128);
  if (experts.count == 0) {
    if (mixtral)
      fields.refuse(fields.find(expert_counts[1]) ? expert_counts[1] : expert_counts[0], "1 or more");
    return {};
  }
  experts.per_token = fields.integer_or("num_experts_per_tok", mixtral ? 2 : 8, 1, 1 << 16);
  if (experts.per_token > experts.count)
    fields.refuse("num_experts_per_tok", fmt::format("1 to {}, the number of experts", experts.count));
  experts.width =
      mixtral ? config.intermediate_size : fields.integer_or("moe_intermediate_size", 768, 1, 1 << 24);
  experts.normalise = mixtral || fields.boolean_or("norm_topk_prob", false);
  if (mixtral) return experts;
  experts.every = fields.integer_or("decoder_sparse_step", 1, 1, 1 << 16);
  if (fields.find("mlp_only_layers")) experts.dense_layers = fields.sizes("mlp_only_layers");
  if (std::ranges::any_of(experts.dense_layers, [&](int64_t layer) { return layer >= config.num_layers; }))
    fields.refuse("mlp_only_layers", fmt::format("layers of 0 to {} (num_hidden_layers is {})",
                                                 config.num_layers - 1, config.num_layers));
  return experts;
}

constexpr double largest_theta = 1e15;

RotaryConfig llama3_rotary(const JsonFields& fields) {
  RotaryConfig rotary{.type = RotaryType::llama3};
  rotary.factor = fields.number("factor", 1.0, 1e6);
  rotary.low_freq_factor = fields.number("low_freq_factor", 1e-6, 1e6);
  rotary.high_freq_factor = fields.number("high_freq_factor", 1e-6, 1e6);
  rotary.original_max_position_embeddings = fields.integer("original_max_position_embeddings", 1, 1 << 30);
  if (rotary.high_freq_factor <= rotary.low_freq_factor)
    fields.refuse("high_freq_factor", fmt::format("more than low_freq_factor ({})", rotary.low_freq_factor));
  return rotary;
}

// rope_parameters (new) or rope_scaling (old). The theta may be inside, or beside it, or both if they agree.
RotaryConfig scaled_rotary(const JsonFields& fields, double outer_theta, bool outer_given) {
  fields.allow_only({"rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
                     "original_max_position_embeddings", "partial_rotary_factor"});
  check_neutral(fields, {"partial_rotary_factor", 1});
  const std::string_view key = fields.find("type") && !fields.find("rope_type") ? "type" : "rope_type";
  const std::string type = fields.text_or(key, fields.find("factor") ? "missing" : "default");
  if (type != "default" && type != "llama3") fields.refuse(key, "\"default\", \"llama3\"");
  RotaryConfig rotary = type == "llama3" ? llama3_rotary(fields) : RotaryConfig{};
  rotary.theta = fields.number_or("rope_theta", outer_theta, 1.0, largest_theta);
  if (outer_given && rotary.theta != outer_theta)
    fields.refuse("rope_theta", fmt::format("the rope_theta beside it ({})", outer_theta));
  return rotary;
}

RotaryConfig rotary_of(const Defaults& defaults, const JsonFields& fields) {
  RotaryConfig plain;
  const bool theta_given = fields.find("rope_theta") != nullptr;
  plain.theta = fields.number_or("rope_theta", defaults.rope_theta, 1.0, largest_theta);
  std::optional<RotaryConfig> found;
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    if (fields.is_neutral(name, {})) continue;
    const RotaryConfig rotary = scaled_rotary(fields.object(name), plain.theta, theta_given);
    if (found && *found != rotary) fields.refuse(name, "what rope_parameters says, or none");
    found = rotary;
  }
  return found.value_or(plain);
}

// The window of any layer; 0: there is none. Qwen configs state one that a flag switches off, and that only some layers have.
int64_t sliding_window_of(const Architecture& architecture, int64_t layers, const JsonFields& fields) {
  constexpr int64_t most = int64_t{1} << 40;
  const bool flagged = fields.boolean_or("use_sliding_window", !architecture.window_needs_flag);
  const int64_t otherwise = fields.is_null("sliding_window") ? 0 : architecture.defaults.sliding_window;
  const int64_t window = flagged ? fields.integer_or("sliding_window", otherwise, 1, most) : 0;
  bool some_layer = true;
  if (const json* types = fields.find("layer_types")) {
    const auto is = [](const char* name) { return [name](const json& type) { return type == name; }; };
    const bool known = types->is_array() && std::ranges::all_of(*types, [&](const json& type) {
                         return is("full_attention")(type) || is("sliding_attention")(type);
                       });
    some_layer = known && std::ranges::any_of(*types, is("sliding_attention"));
    if (!known || (some_layer && window == 0))
      fields.refuse("layer_types", "\"full_attention\" in every layer, or a sliding_window beside it");
  } else if (architecture.window_needs_flag && architecture.experts == Experts::none) {
    some_layer = fields.integer_or("max_window_layers", 28, 0, most) < layers;
  }
  return some_layer ? window : 0;
}

DType dtype_of(const JsonFields& fields) {
  const std::string_view key = fields.find("dtype") ? "dtype" : "torch_dtype";
  const std::string name = fields.text_or(key, "float32");
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::fp16;
  if (name == "float32") return DType::fp32;
  fields.refuse(key, "\"bfloat16\", \"float16\", \"float32\"");
}

// In the order of its fields, which counts in some.
std::string quantization_of(std::string_view text, std::string_view where) {
  const nlohmann::ordered_json config = parse_ordered_json(text, where);
  for (const char* outer : {"text_config", ""}) {
    const nlohmann::ordered_json fields =
        *outer ? config.value(outer, nlohmann::ordered_json::object()) : config;
    if (fields.is_object() && fields.contains("quantization_config") &&
        !fields["quantization_config"].empty())
      return fields["quantization_config"].dump();
  }
  return {};
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view where) {
  const json merged = language_model_config(parse_json(text, where), where);
  const JsonFields fields(merged, where);
  const Architecture& architecture = architecture_of(fields);
  for (const Neutral& neutral : neutrals) check_neutral(fields, neutral);
  if (architecture.experts == Experts::none)
    for (const std::string_view count : expert_counts) check_neutral(fields, {count, 0});
  if (fields.text_or("hidden_act", "silu") != "silu") fields.refuse("hidden_act", "\"silu\"");

  ModelConfig config;
  config.architecture = architecture.name;
  set_sizes(config, architecture.defaults, fields);
  config.sliding_window = sliding_window_of(architecture, config.num_layers, fields);
  set_biases(config, architecture, fields);
  config.qk_norm = architecture.qk_norm;
  if (architecture.experts != Experts::none) config.experts = experts_of(config, architecture, fields);
  config.rotary = rotary_of(architecture.defaults, fields);
  config.tie_word_embeddings = fields.boolean_or("tie_word_embeddings", false);
  config.dtype = dtype_of(fields);
  config.quantization = quantization_of(text, where);
  config.activation_group = scheme_of(config)->activation_group();
  config.index_topk = fields.integer_or("index_topk", 0, 0, 1 << 30);
  config.prediction_layers = fields.integer_or("num_nextn_predict_layers", 0, 0, 1 << 10);
  config.eos_token_ids = fields.token_ids("eos_token_id");
  if (const int32_t eos = architecture.defaults.eos_token_id; eos >= 0 && !fields.is_null("eos_token_id"))
    config.default_eos_token_id = eos;
  return config;
}

ModelConfig read_model_config(const ModelFiles& files) {
  return parse_model_config(with_settings_beside(files, files.text("config.json")),
                            files.where("config.json"));
}

}  // namespace maniple
