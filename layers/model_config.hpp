// The configuration of a decoder of the Llama/Qwen family. runtime/checkpoint reads it from config.json.
#pragma once

#include <kernels/gate_activation.hpp>
#include <kernels/routing.hpp>
#include <kernels/tensor/dtype.hpp>
#include <kernels/weight.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

enum class RotaryType : uint8_t { standard, llama3, yarn };

// Frequencies theta^(-2i / width). llama3 divides the slow ones by factor; yarn (arXiv 2309.00071) too, with a ramp between the pairs
// that turn beta_fast and beta_slow times in the original context, and its cosines and sines are multiplied (rotary_amplitude).
struct RotaryConfig {
  RotaryType type = RotaryType::standard;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // the ramp begins and ends at whole pairs
  std::optional<double> attention_factor = {};
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  int64_t width = 0;  // the first lanes of a head, which rotate in halves; 0: all

  int64_t width_of(int64_t head_dim) const { return width > 0 ? width : head_dim; }
  bool operator==(const RotaryConfig&) const = default;
};

// Of the tensors of a layer's experts, below "model.layers.0.". Empty: the family has no such tensor.
struct ExpertNames {
  std::string_view block = "mlp";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string_view router = "gate";
  std::string_view correction_bias = {};  // of the router's choice; in the block
  std::string_view shared = {};           // the expert of every token; in the block, names of an MLP
  std::string_view shared_gate = {};      // whose sigmoid it is multiplied with
  bool biased = false;                    // the router, and what experts multiply
  bool interleaved = false;  // all of a layer are one tensor, in which rows of gate and up take turns

  static const ExpertNames qwen, mixtral, qwen2, deepseek_v2, glm, minimax, hunyuan, gpt_oss;
  bool operator==(const ExpertNames&) const = default;
};
inline constexpr ExpertNames ExpertNames::qwen{};
inline constexpr ExpertNames ExpertNames::mixtral{"block_sparse_moe", "w1", "w3", "w2"};
inline constexpr ExpertNames ExpertNames::qwen2{.shared = "shared_expert",
                                                .shared_gate = "shared_expert_gate"};
inline constexpr ExpertNames ExpertNames::deepseek_v2{.shared = "shared_experts"};
inline constexpr ExpertNames ExpertNames::glm{.correction_bias = "gate.e_score_correction_bias",
                                              .shared = "shared_experts"};
inline constexpr ExpertNames ExpertNames::minimax{"block_sparse_moe",       "w1", "w3", "w2", "gate",
                                                  "e_score_correction_bias"};
inline constexpr ExpertNames ExpertNames::hunyuan{
    .router = "router.gate", .correction_bias = "expert_bias", .shared = "shared_mlp"};
inline constexpr ExpertNames ExpertNames::gpt_oss{.router = "router", .biased = true, .interleaved = true};

// The experts of each sparse layer.
struct ExpertsConfig {
  int64_t count = 0;         // of a layer; 0: every layer is dense
  int64_t width = 0;         // inner size of one
  Router router = {};        // its biases are tensors
  int64_t shared_width = 0;  // of the expert of every token; 0: there is none
  ExpertNames names = {};
  bool transposed = false;  // interleaved ones are stored inputs x outputs
};

// Latent attention: lanes of a head's query and key without and with a rotation, of its value, and of what the keys and values of
// all heads are made of.
struct LatentConfig {
  int64_t query_rank = 0;  // of what queries are made of; 0: of the hidden state
  int64_t rank = 0;
  int64_t plain = 0, rotary = 0, value = 0;
  bool interleaved = true;  // stored in pairs of neighbours that rotate
  double norm_eps = 1e-6;   // of both ranks' norms

  // Of a token in the cache, with the padding of the kernels.
  int64_t row_lanes() const { return (rank + 15) / 16 * 16 + (rotary + 15) / 16 * 16; }
};

enum class AttentionKind : uint8_t { full, latent };

struct LayerConfig {
  int64_t dense_width = 0;  // inner size of the MLP; 0: the experts are in its place
  AttentionKind attention = AttentionKind::full;
  size_t rotary = 0;   // in ModelConfig::rotaries
  int64_t window = 0;  // tokens that a token attends to, itself the last; 0: all

  bool is_sparse() const { return dense_width == 0; }
};

struct ModelConfig {
  std::string architecture;  // "Qwen3ForCausalLM"
  int64_t hidden_size = 0;
  std::vector<LayerConfig> layers;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // even; num_heads * head_dim may differ from hidden_size
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0.0;
  std::vector<RotaryConfig> rotaries{RotaryConfig{}};
  bool tie_word_embeddings = false;  // lm_head is embed_tokens
  bool qkv_bias = false;
  bool o_bias = false;
  bool sinks = false;  // a learned score of each query head joins its softmax
  bool mlp_bias = false;
  bool qk_norm = false;                        // RMS norm of each head of q and k, before the rotation,
  bool whole_qk_norm = false;                  // or of all heads of q, and of k
  std::optional<LatentConfig> latent;          // then there is one KV head
  GateActivation gate = GateActivation::silu;  // of every MLP and expert
  ExpertsConfig experts;
  // quantization_config as JSON, empty for a model in floating point; runtime/checkpoint/quantization reads it.
  std::string quantization;
  std::optional<WeightFormat> quantize;  // a model in floating point, while it is loaded
  int64_t activation_group = 1;  // inputs that are rounded with one scale: no rank may hold a part of them
  DType dtype = DType::fp32;     // as config.json states it; each stored tensor has its own type
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> default_eos_token_id;  // of the architecture, for models that name none in any file
  int64_t index_topk = 0;  // sparse attention chooses so many tokens; 0: none. Longer contexts are refused
  int64_t prediction_layers = 0;  // of a checkpoint, behind the model's own: not read

  // Of the inputs of o_proj.
  int64_t attention_width() const { return num_heads * (latent ? latent->value : head_dim); }
  int64_t num_layers() const { return std::ssize(layers); }
  int64_t sparse_layers() const { return std::ranges::count_if(layers, &LayerConfig::is_sparse); }
};

// "256 in 8 groups (4 kept), 8 a token, 1 shared; first 3 layers dense"; empty where every layer is dense.
std::string experts_text(const ModelConfig& config);
// "latent, 576 lanes a token and layer (68.6 KiB a token, 1/3.5 of 8 KV heads of 128)"; empty for other attention.
std::string latent_text(const ModelConfig& config, DType cache);

}  // namespace maniple
