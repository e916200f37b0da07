#include <kernels/support/check.hpp>
#include <runtime/checkpoint/loading/architecture.hpp>
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

namespace defaults {
constexpr Defaults qwen3{151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6, 1e4, 4096};
constexpr Defaults qwen2{151936, 4096, 22016, 32, 32, 32, 0, 32768, 1e-6, 1e4, 4096};
constexpr Defaults qwen3_moe{151936, 2048, 6144, 24, 32, 4, 0, 32768, 1e-6, 1e4, 4096};
constexpr Defaults llama{32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6, 1e4, 0, 2};
constexpr Defaults mistral{32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-6, 1e4, 4096, 2};
constexpr Defaults mixtral{32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-5, 1e6, 0, 2};
constexpr Defaults qwen2_moe{151936, 2048, 5632, 24, 16, 16, 0, 32768, 1e-6, 1e4, 4096};
constexpr Defaults glm4_moe{151552, 4096, 10944, 46, 96, 8, 0, 131072, 1e-5, 1e4, 0};
constexpr Defaults minimax_m2{200064, 3072, 1536, 62, 48, 8, 128, 196608, 1e-6, 5e6, 0, 200020};
constexpr Defaults hy_v3{120832, 4096, 13312, 80, 64, 8, 128, 131072, 1e-5, 11158840, 0};
constexpr Defaults gpt_oss{201088, 2880, 2880, 36, 64, 8, 64, 131072, 1e-5, 150000, 128};
constexpr Defaults deepseek_v3{129280, 7168, 18432, 61, 128, 0, 0, 4096, 1e-6, 1e4, 0, 1};
constexpr Defaults deepseek_v32{129280, 7168, 18432, 61, 128, 0, 0, 163840, 1e-6, 1e4, 0, 1};
constexpr Defaults deepseek_v2{102400, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6, 1e4, 0, 2};
constexpr Defaults glm4_moe_lite{154880, 2048, 10240, 47, 20, 0, 0, 202752, 1e-5, 1e4, 0, 1};
constexpr Defaults glm_moe_dsa{154880, 6144, 12288, 78, 64, 0, 0, 202752, 1e-5, 1e4, 0, 1};
}  // namespace defaults

namespace latent {
constexpr LatentDefaults deepseek{1536, 512, 128, 64, 128};
constexpr LatentDefaults deepseek_v32{1536, 512, 128, 64, 128, 2048};
constexpr LatentDefaults glm4_lite{768, 512, 192, 64, 256};
constexpr LatentDefaults glm_dsa{2048, 512, 192, 64, 256, 2048};
}  // namespace latent

namespace experts {
constexpr ExpertFields qwen3{.names = ExpertNames::qwen,
                             .count = "num_experts",
                             .default_count = 128,
                             .default_per_token = 8,
                             .default_width = 768,
                             .default_normalise = false};
constexpr ExpertFields qwen2{.names = ExpertNames::qwen2,
                             .count = "num_experts",
                             .default_count = 60,
                             .default_per_token = 4,
                             .default_width = 1408,
                             .default_normalise = false,
                             .shared = "shared_expert_intermediate_size",
                             .default_shared = 5632};
// Experts in place of every MLP, as wide as config.json says of MLPs.
constexpr ExpertFields as_mixtral(const ExpertNames& names, int64_t count, int64_t per_token, int64_t width,
                                  RouterScoring scoring = RouterScoring::softmax) {
  return {.names = names,
          .count = "num_local_experts",
          .default_count = count,
          .default_per_token = per_token,
          .width = "intermediate_size",
          .default_width = width,
          .normalise = "",
          .scoring = scoring,
          .dense = DenseLayers::none};
}
constexpr ExpertFields mixtral = as_mixtral(ExpertNames::mixtral, 8, 2, 14336),
                       minimax = as_mixtral(ExpertNames::minimax, 256, 8, 1536, RouterScoring::sigmoid),
                       gpt_oss = as_mixtral(ExpertNames::gpt_oss, 128, 4, 2880);
constexpr ExpertFields deepseek_v3{.names = ExpertNames::glm,
                                   .count = "n_routed_experts",
                                   .default_count = 256,
                                   .default_per_token = 8,
                                   .default_width = 2048,
                                   .scoring = RouterScoring::sigmoid,
                                   .epsilon = 1e-20F,
                                   .scale = "routed_scaling_factor",
                                   .default_scale = 2.5,
                                   .shared = "n_shared_experts",
                                   .default_shared = 1,
                                   .dense = DenseLayers::first,
                                   .default_dense = 3,
                                   .default_groups = 8,
                                   .default_kept = 4};
constexpr ExpertFields as_deepseek_v3(int64_t count, int64_t per_token, int64_t width, double scale,
                                      int64_t dense = 1) {
  ExpertFields fields = deepseek_v3;
  fields.default_count = count;
  fields.default_per_token = per_token;
  fields.default_width = width;
  fields.default_scale = scale;
  fields.default_dense = dense;
  fields.default_groups = fields.default_kept = 1;
  return fields;
}
constexpr ExpertFields glm4 = as_deepseek_v3(128, 8, 1408, 1), glm4_lite = as_deepseek_v3(64, 4, 1536, 1.8),
                       glm_dsa = as_deepseek_v3(256, 8, 2048, 2.5, 3);
constexpr ExpertFields hunyuan{.names = ExpertNames::hunyuan,
                               .count = "num_experts",
                               .default_count = 192,
                               .default_per_token = 8,
                               .default_width = 1536,
                               .normalise = "",
                               .scoring = RouterScoring::sigmoid,
                               .epsilon = 1e-20F,
                               .scale = "router_scaling_factor",
                               .default_scale = 2.826,
                               .shared = "num_shared_experts",
                               .default_shared = 1,
                               .dense = DenseLayers::first};
constexpr ExpertFields deepseek_v2{.names = ExpertNames::deepseek_v2,
                                   .count = "n_routed_experts",
                                   .default_count = 64,
                                   .default_per_token = 0,
                                   .default_width = 1407,
                                   .default_normalise = false,
                                   .may_normalise = false,
                                   .scale = "routed_scaling_factor",
                                   .shared = "n_shared_experts",
                                   .default_shared = 2,
                                   .dense = DenseLayers::first,
                                   .default_dense = 0};
}  // namespace experts

using enum Bias;

constexpr RotaryConfig gpt_oss_rotary{
    .type = RotaryType::yarn, .factor = 32, .original_max_position_embeddings = 4096, .truncate = false};
constexpr GateActivation gpt_oss_gate{.limit = 7, .alpha = 1.702F};

constexpr Architecture architectures[] = {
    {"Qwen3ForCausalLM", by_flag, by_flag, never, HeadNorm::each, Windows::last_if_flagged, defaults::qwen3},
    {"LlamaForCausalLM", by_flag, by_flag, by_flag, HeadNorm::none, Windows::none, defaults::llama},
    {"Qwen2ForCausalLM", always, never, never, HeadNorm::none, Windows::last_if_flagged, defaults::qwen2},
    {"MistralForCausalLM", never, never, never, HeadNorm::none, Windows::every, defaults::mistral},
    {"MinistralForCausalLM", never, never, never, HeadNorm::none, Windows::every, defaults::mistral},
    {"Qwen3MoeForCausalLM", by_flag, by_flag, never, HeadNorm::each, Windows::every_if_flagged,
     defaults::qwen3_moe, &experts::qwen3},
    {"MixtralForCausalLM", never, never, never, HeadNorm::none, Windows::every, defaults::mixtral,
     &experts::mixtral},
    {"Qwen2MoeForCausalLM", by_flag, never, never, HeadNorm::none, Windows::even_if_flagged,
     defaults::qwen2_moe, &experts::qwen2, 1, "qkv_bias", true},
    {"Glm4MoeForCausalLM", by_flag, never, never, HeadNorm::by_flag, Windows::none, defaults::glm4_moe,
     &experts::glm4, 0.5},
    {"MiniMaxM2ForCausalLM", never, never, never, HeadNorm::whole, Windows::none, defaults::minimax_m2,
     &experts::minimax, 0.5},
    {"DeepseekV2ForCausalLM", by_flag, by_flag, never, HeadNorm::none, Windows::none, defaults::deepseek_v2,
     &experts::deepseek_v2, 1, "attention_bias", false, &latent::deepseek},
    {"DeepseekV3ForCausalLM", by_flag, by_flag, never, HeadNorm::none, Windows::none, defaults::deepseek_v3,
     &experts::deepseek_v3, 1, "attention_bias", false, &latent::deepseek},
    {"DeepseekV32ForCausalLM", by_flag, by_flag, never, HeadNorm::none, Windows::none, defaults::deepseek_v32,
     &experts::deepseek_v3, 1, "attention_bias", false, &latent::deepseek_v32},
    {"GlmMoeDsaForCausalLM", by_flag, by_flag, never, HeadNorm::none, Windows::none, defaults::glm_moe_dsa,
     &experts::glm_dsa, 1, "attention_bias", false, &latent::glm_dsa},
    {"Glm4MoeLiteForCausalLM", by_flag, by_flag, never, HeadNorm::none, Windows::none,
     defaults::glm4_moe_lite, &experts::glm4_lite, 1, "attention_bias", false, &latent::glm4_lite},
    {"HYV3ForCausalLM", by_flag, by_flag, never, HeadNorm::each, Windows::none, defaults::hy_v3,
     &experts::hunyuan},
    {"GptOssForCausalLM", by_flag, by_flag, never, HeadNorm::none, Windows::even, defaults::gpt_oss,
     &experts::gpt_oss, 1, "attention_bias", true, nullptr, gpt_oss_rotary, gpt_oss_gate, true},
};

// Settings of related models, and the value that leaves the arithmetic as the decoder computes it.
struct Neutral {
  std::string_view name;
  std::optional<double> value;  // none: it must be absent or null
};

constexpr Neutral neutrals[] = {
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"n_routed_experts", 0},
    {"moe_num_experts", 0},
    {"n_shared_experts", 0},
    {"num_shared_experts", 0},
    {"shared_expert_intermediate_size", 0},
    {"shared_intermediate_size", 0},
    {"moe_layer_freq", 1},
    {"compression_config", {}},
    {"partial_rotary_factor", 1},
    {"attention_multiplier", {}},
    {"query_pre_attn_scalar", {}},
    {"attention_chunk_size", {}},
    {"clip_qkv", {}},
    {"swiglu_limit", {}},
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

bool reads(const Architecture& architecture, std::string_view name) {
  const ExpertFields* experts = architecture.experts;
  const bool is_count = name == "num_experts" || name == "num_local_experts";  // both mean the same
  return (experts && (is_count || name == experts->count || name == experts->shared)) ||
         (architecture.partial_rotary != 1 && name == "partial_rotary_factor") ||
         (architecture.gate.limit != 0 && name == "swiglu_limit");
}

const Architecture& architecture_of(const JsonFields& fields) {
  const json* names = fields.find("architectures");
  std::string supported;
  for (const Architecture& candidate : architectures) {
    if (names && *names == json::array({candidate.name})) return candidate;
    supported += fmt::format("{}[\"{}\"]", supported.empty() ? "" : ", ", candidate.name);
  }
  refuse_known_model(fields, supported);
  fields.refuse("architectures", supported);
}

bool bias_of(Bias bias, const JsonFields& fields, std::string_view flag, bool otherwise = false) {
  const bool given = fields.boolean_or(flag, otherwise);
  return bias == Bias::always || (bias == Bias::by_flag && given);
}

void set_biases(ModelConfig& config, const Architecture& architecture, const JsonFields& fields) {
  config.qkv_bias = bias_of(architecture.qkv, fields, architecture.qkv_flag, architecture.default_qkv_flag);
  const bool by_default = architecture.qkv_flag == "attention_bias" && architecture.default_qkv_flag;
  config.o_bias = bias_of(architecture.output, fields, "attention_bias", by_default);
  config.mlp_bias = bias_of(architecture.mlp, fields, "mlp_bias");
  // Implementations disagree on such a flag: some apply it, some ignore it.
  if (fields.boolean_or("attention_bias", false) && !config.qkv_bias)
    fields.refuse("attention_bias", "false for this architecture");
  if (fields.boolean_or("mlp_bias", false) && !config.mlp_bias)
    fields.refuse("mlp_bias", "false for this architecture");
}

GateActivation gate_of(const Architecture& architecture, const JsonFields& fields) {
  GateActivation gate = architecture.gate;
  if (gate.limit == 0) return gate;
  gate.limit = static_cast<float>(fields.number_or("swiglu_limit", double{gate.limit}, 1e-6, 1e6));
  gate.alpha = static_cast<float>(fields.number_or("swiglu_alpha", double{gate.alpha}, 1e-6, 1e6));
  return gate;
}

void set_sizes(ModelConfig& config, const Defaults& defaults, const JsonFields& fields) {
  // Far above any model, far below what overflows: the largest product of two fits 48 bits.
  constexpr int64_t most = 1 << 24;
  config.hidden_size = fields.integer_or("hidden_size", defaults.hidden_size, 1, most);
  config.layers.resize(
      static_cast<size_t>(fields.integer_or("num_hidden_layers", defaults.num_layers, 1, 10'000)));
  config.num_heads = fields.integer_or("num_attention_heads", defaults.num_heads, 1, 1 << 16);
  config.vocab_size = fields.integer_or("vocab_size", defaults.vocab_size, 1, most);
  config.max_position_embeddings =
      fields.integer_or("max_position_embeddings", defaults.positions, 1, 1 << 30);
  config.rms_norm_eps = fields.number_or("rms_norm_eps", defaults.rms_norm_eps, 1e-30, 1.0);
}

void set_heads(ModelConfig& config, const Defaults& defaults, const JsonFields& fields) {
  const bool kv_as_heads = defaults.num_kv_heads == 0 || fields.is_null("num_key_value_heads");
  config.num_kv_heads = fields.integer_or(
      "num_key_value_heads", kv_as_heads ? config.num_heads : defaults.num_kv_heads, 1, config.num_heads);
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

bool needs_flag(Windows rule) {
  return rule != Windows::none && rule != Windows::every && rule != Windows::even;
}

bool has_window(Windows rule, int64_t layer, int64_t max_window_layers) {
  if (rule == Windows::even) return layer % 2 == 0;
  if (rule == Windows::even_if_flagged) return layer % 2 == 0 && layer < max_window_layers;
  if (rule == Windows::last_if_flagged) return layer >= max_window_layers;
  return rule != Windows::none;
}

// Whether each layer has a window, as layer_types says.
std::vector<bool> windows_by_type(const json& types, const Architecture& architecture, int64_t layers,
                                  const JsonFields& fields) {
  const auto is = [](const char* name) { return [name](const json& type) { return type == name; }; };
  const bool sparse = architecture.latent && architecture.latent->index_topk > 0;
  const bool known = types.is_array() && std::ranges::all_of(types, [&](const json& type) {
                       return is("full_attention")(type) || is("sliding_attention")(type) ||
                              (sparse && is("deepseek_sparse_attention")(type));
                     });
  if (!known) fields.refuse("layer_types", "\"full_attention\" or \"sliding_attention\" of each layer");
  std::vector<bool> windows;
  for (const json& type : types) windows.push_back(is("sliding_attention")(type));
  if (std::ranges::count(windows, true) > 0 && std::ssize(windows) != layers)
    fields.refuse("layer_types", fmt::format("the type of each of {} layers", layers));
  windows.resize(static_cast<size_t>(layers));
  return windows;
}

void set_windows(ModelConfig& config, const Architecture& architecture, const JsonFields& fields) {
  constexpr int64_t most = int64_t{1} << 40;
  const Windows rule = architecture.windows;
  const bool used = rule != Windows::none && fields.boolean_or("use_sliding_window", !needs_flag(rule));
  const int64_t otherwise = fields.is_null("sliding_window") ? 0 : architecture.defaults.sliding_window,
                window = used ? fields.integer_or("sliding_window", otherwise, 1, most) : 0,
                max_window_layers = used ? fields.integer_or("max_window_layers", 28, 0, most) : 0;
  std::vector<bool> windows;
  if (const json* types = fields.find("layer_types"))
    windows = windows_by_type(*types, architecture, config.num_layers(), fields);
  else
    for (int64_t layer = 0; layer < config.num_layers(); ++layer)
      windows.push_back(has_window(rule, layer, max_window_layers));
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if (!windows[layer]) continue;
    config.layers[layer].window = std::min<int64_t>(window, INT32_MAX);
    if (window == 0 && fields.find("layer_types"))
      fields.refuse("layer_types", "\"full_attention\" in every layer, or a sliding_window beside it");
  }
}

DType dtype_of(const JsonFields& fields) {
  const std::string_view key = fields.find("dtype") ? "dtype" : "torch_dtype";
  const std::string name = fields.text_or(key, "float32");
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::fp16;
  if (name == "float32") return DType::fp32;
  fields.refuse(key, "\"bfloat16\", \"float16\", \"float32\"");
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view where) {
  const json merged = language_model_config(parse_json(text, where), where);
  const JsonFields fields(merged, where);
  const Architecture& architecture = architecture_of(fields);
  for (const Neutral& neutral : neutrals)
    if (!reads(architecture, neutral.name)) check_neutral(fields, neutral);
  if (fields.text_or("hidden_act", "silu") != "silu") fields.refuse("hidden_act", "\"silu\"");

  ModelConfig config;
  config.architecture = architecture.name;
  set_sizes(config, architecture.defaults, fields);
  if (architecture.latent)
    set_latent(config, *architecture.latent, fields);
  else
    set_heads(config, architecture.defaults, fields);
  set_windows(config, architecture, fields);
  config.sinks = architecture.sinks;
  set_biases(config, architecture, fields);
  config.qk_norm = architecture.norm == HeadNorm::each ||
                   (architecture.norm == HeadNorm::by_flag && fields.boolean_or("use_qk_norm", false));
  config.whole_qk_norm = architecture.norm == HeadNorm::whole;
  config.gate = gate_of(architecture, fields);
  set_layers(config, architecture, fields);
  config.rotaries = {rotary_of(architecture, config, fields)};
  config.tie_word_embeddings = fields.boolean_or("tie_word_embeddings", false);
  config.dtype = dtype_of(fields);
  config.quantization = quantization_in(parse_ordered_json(text, where));
  config.experts.transposed = config.experts.names.interleaved && config.quantization.empty();
  config.activation_group = scheme_of(config)->activation_group();
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
