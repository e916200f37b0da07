// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) in its absorbed form: all query heads of the model attend to one row a
// token, [c | k_r], stored once, of which c is the value too. With the matrix that makes a head's keys and values of c cut into
// [W_k; W_v], its score is (q_n W_k) c + q_r k_r, and its result W_v (sum of p c). Query heads are sharded over the tensor group.
#pragma once

#include <layers/attention.hpp>

#include <optional>
#include <string>
#include <vector>

namespace maniple {

class LatentAttention {
 public:
  // source: "model.layers.0.self_attn"
  LatentAttention(const std::string& source, const LayerConfig& layer, const ModelConfig& config,
                  TensorRank tensor);
  // The vectors of weights point to parameters.
  LatentAttention(LatentAttention&&) = default;
  // x [tokens, hidden] -> fp32 [tokens, hidden]. cos_sin: of the rotated lanes, padded.
  TensorView forward(ConstTensorView x, ConstTensorView cos_sin, const AttentionBatch& batch,
                     const KvPages& pages, ForwardContext& context) const;
  const HeadLayout& heads() const { return heads_; }
  void append_parameters(Parameters& parameters);

 private:
  // Heads of [plain lanes | rotated ones].
  class Heads : public LinearBase {
   public:
    Heads(const LogicalOutput& output, int64_t inputs, bool bias, const HeadLanes& plain,
          const HeadLanes& rotated, IndexRange heads);
  };

  // [tokens, heads x (plain + padded rotary lanes)], not rotated.
  TensorView queries_of(ConstTensorView x, ForwardContext& context) const;

  LatentConfig sizes_;
  HeadLayout heads_;
  float scale_;
  std::optional<ReplicatedLinear> query_down_;
  std::optional<RmsNorm> query_norm_;
  Heads query_;  // of query_down_, or of x
  Heads row_;
  RmsNorm row_norm_;
  std::vector<Parameter> keys_, values_;                    // W_k turned around and W_v, by head of this rank
  std::vector<const Weight*> key_weights_, value_weights_;  // of these
  RowParallelLinear output_;
};

}  // namespace maniple
