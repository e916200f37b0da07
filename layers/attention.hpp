// Self-attention over the paged KV cache, heads sharded over the tensor group.
#pragma once

#include <layers/linear.hpp>
#include <layers/model_config.hpp>
#include <layers/rms_norm.hpp>

#include <optional>
#include <vector>

namespace maniple {

// Of the model, those of a tensor rank.
IndexRange query_heads_of(const ModelConfig& config, TensorRank tensor);

// Attention over the pages of this rank; or, of ranks that hold the same KV head at different positions, each computes its part for the
// queries of all.
void attend(const AttentionCall& call, ForwardContext& context);

class Attention {
 public:
  // source: "model.layers.0.self_attn"
  Attention(const std::string& source, const LayerConfig& layer, const ModelConfig& config,
            TensorRank tensor);
  // x [tokens, hidden] -> fp32 [tokens, hidden].
  TensorView forward(ConstTensorView x, ConstTensorView cos_sin, const AttentionBatch& batch,
                     const KvPages& pages, ForwardContext& context) const;
  const HeadLayout& heads() const { return qkv_.heads(); }
  void append_parameters(Parameters& parameters);
  // Call it once, before the first forward.
  void prepare(Device& device);

 private:
  HeadNorms norms(ConstTensorView qkv, ForwardContext& context) const;
  // fp32 [tokens, query and key heads of the model]
  ConstTensorView squares_of_all(ConstTensorView qkv, ForwardContext& context) const;
  int64_t head_dim_;  // without padding
  int64_t model_query_heads_;
  QkvParallelLinear qkv_;
  RowParallelLinear output_;
  int64_t window_;
  Parameter sinks_;  // of the own query heads; no rows: there are none
  std::optional<RmsNorm> query_norm_;
  std::optional<RmsNorm> key_norm_;
  std::vector<int32_t>
      heads_of_all_;  // of a whole-width norm: where the ranks' squares have those of each head
  Tensor order_;      // these, on the device
};

}  // namespace maniple
