// How the fields of a family's config.json become a ModelConfig, as data.
#pragma once

#include <layers/model_config.hpp>
#include <runtime/checkpoint/json_fields.hpp>

namespace maniple {

// Whether the layers of an architecture have a bias, or the config's flag decides.
enum class Bias : uint8_t { never, always, by_flag };
// The norm of query and key heads; by_flag: of each, where use_qk_norm is true.
enum class HeadNorm : uint8_t { none, each, by_flag, whole };

// Which layers have a window of sliding_window tokens, unless layer_types names them; if flagged: where use_sliding_window is true.
// last: those from max_window_layers on; even_if_flagged: those before it.
enum class Windows : uint8_t { none, every, even, every_if_flagged, even_if_flagged, last_if_flagged };

// What a field that config.json lacks means: the defaults of the architecture's config class in transformers 5.23. README.md has the
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

// Which layers are dense: none, those that decoder_sparse_step and mlp_only_layers leave out, or the first ones
// (first_k_dense_replace) unless mlp_layer_types names them.
enum class DenseLayers : uint8_t { none, between, first };

// Fields of the experts, and what they mean where they are absent. A family without a field has no name for it.
struct ExpertFields {
  ExpertNames names;
  std::string_view count;                    // or num_experts, num_local_experts, where these are read
  int64_t default_count, default_per_token;  // 0: it must be there
  std::string_view width = "moe_intermediate_size";
  int64_t default_width;
  std::string_view normalise = "norm_topk_prob";  // empty: always
  bool default_normalise = true;
  bool may_normalise = true;  // false: programs differ in what they do then
  RouterScoring scoring = RouterScoring::softmax;
  float epsilon = 0;  // beside the sum that normalises
  std::string_view scale = {};
  double default_scale = 1;
  // How many experts' widths the shared one has; of a name that ends in _size, its width.
  std::string_view shared = {};
  int64_t default_shared = 0;
  DenseLayers dense = DenseLayers::between;
  int64_t default_dense = 1;  // of DenseLayers::first
  int64_t default_groups = 1, default_kept = 1;
};

// Sizes of latent attention where config.json lacks them; query_rank: of q_lora_rank.
struct LatentDefaults {
  int64_t query_rank, rank, plain, rotary, value;
  int64_t index_topk = 0;  // tokens that sparse attention chooses; 0: attention to all
};

struct Architecture {
  std::string_view name;
  Bias qkv;
  Bias output;
  Bias mlp;
  HeadNorm norm;
  Windows windows;
  Defaults defaults;
  const ExpertFields* experts = nullptr;
  double partial_rotary = 1;  // partial_rotary_factor by default; 1: it is not read
  std::string_view qkv_flag = "attention_bias";
  bool default_qkv_flag = false;
  const LatentDefaults* latent = nullptr;
  RotaryConfig rotary = {};  // where config.json says nothing of it; its theta is that of the defaults
  GateActivation gate = {};  // where it clamps, swiglu_limit and swiglu_alpha are read
  bool sinks = false;
};

// Sets what latent attention has in place of heads. After set_sizes; before rotary_of.
void set_latent(ModelConfig& config, const LatentDefaults& defaults, const JsonFields& fields);
// Sets experts and layers.
void set_layers(ModelConfig& config, const Architecture& architecture, const JsonFields& fields);
// rope_parameters (new) or rope_scaling (old), and what stands beside them.
RotaryConfig rotary_of(const Architecture& architecture, const ModelConfig& config, const JsonFields& fields);

}  // namespace maniple
