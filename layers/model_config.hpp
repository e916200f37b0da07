// The configuration of a decoder of the Llama/Qwen family. runtime/checkpoint reads it from config.json.
#pragma once

#include <kernels/tensor/dtype.hpp>
#include <kernels/weight.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

enum class RotaryType : uint8_t { standard, llama3 };

// Frequencies theta^(-2i / head_dim). llama3 divides the slow ones by factor; only it uses
// the last four fields.
struct RotaryConfig {
  RotaryType type = RotaryType::standard;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 0;

  bool operator==(const RotaryConfig&) const = default;
};

enum class ExpertNames : uint8_t { qwen, mixtral };  // of their tensors

// The experts of the sparse layers; in these they replace the MLP.
struct ExpertsConfig {
  int64_t count = 0;                  // of a layer; 0: every layer is dense
  int64_t per_token = 0;              // chosen for each token
  int64_t width = 0;                  // inner size of one
  bool normalise = false;             // the weights of a token's experts are divided by their sum
  int64_t every = 1;                  // layers every - 1, 2 every - 1, ... are sparse,
  std::vector<int64_t> dense_layers;  // except these
  ExpertNames names = ExpertNames::qwen;

  bool in_layer(int64_t layer) const {
    return count > 0 && (layer + 1) % every == 0 && std::ranges::count(dense_layers, layer) == 0;
  }
};

struct ModelConfig {
  std::string architecture;  // "Qwen3ForCausalLM"
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // even; num_heads * head_dim may differ from hidden_size
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0.0;
  RotaryConfig rotary;
  bool tie_word_embeddings = false;  // lm_head is embed_tokens
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm of each head of q and k, before the rotation
  ExpertsConfig experts;
  // quantization_config as JSON, empty for a model in floating point; runtime/checkpoint/quantization reads it.
  std::string quantization;
  std::optional<WeightFormat> quantize;  // a model in floating point, while it is loaded
  int64_t activation_group = 1;  // inputs that are rounded with one scale: no rank may hold a part of them
  DType dtype = DType::fp32;     // as config.json states it; each stored tensor has its own type
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> default_eos_token_id;  // of the architecture, for models that name none in any file
  int64_t sliding_window =
      0;  // tokens that a token attends to, itself included; 0: all. Longer contexts are refused
  int64_t index_topk = 0;  // sparse attention chooses so many tokens; 0: none. Longer contexts are refused
  int64_t prediction_layers = 0;  // of a checkpoint, behind the model's own: not read

  int64_t sparse_layers() const {
    int64_t sparse = 0;
    for (int64_t layer = 0; layer < num_layers; ++layer) sparse += experts.in_layer(layer) ? 1 : 0;
    return sparse;
  }
};

}  // namespace maniple
