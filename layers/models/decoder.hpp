// The decoder of the Llama/Qwen family, by its config: pre-norm -> qkv (bias?) -> (q/k norm?) -> rotary ->
// attention -> o -> pre-norm -> gated MLP.
#pragma once

#include <layers/attention.hpp>
#include <layers/gated_mlp.hpp>
#include <layers/models/model.hpp>
#include <layers/vocab_embedding.hpp>

#include <deque>
#include <optional>

namespace maniple {

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, const RankPlan& plan);

  Parameters parameters() override;
  bool ignores(std::string_view source) const override;
  int64_t num_layers() const override { return own_.size(); }
  HeadLayout heads() const override { return layers_.front().attention.heads(); }
  VocabularyShard vocabulary() const override { return vocabulary_; }
  const Parameter* embedding() const override { return embedding_ ? &embedding_->table() : nullptr; }
  const Parameter* head() const override { return lm_head_ ? &lm_head_->weight() : nullptr; }
  void prepare(Ops& ops, int64_t max_model_len) override;
  ResidualRows rows(int64_t tokens, const Groups& groups) const override {
    return {tokens, config_.hidden_size, *groups.tensor};
  }
  TensorView forward(const StepBatch& batch, TensorView input, std::span<const KvPages> pages,
                     ForwardContext& context) override;

 private:
  struct Layer {
    Layer(const std::string& source, const ModelConfig& config, TensorRank tensor);
    RmsNorm input_norm;
    Attention attention;
    RmsNorm post_attention_norm;
    GatedMlp mlp;
  };

  void forward_layer(size_t index, const StepBatch& batch, const KvPages& pages, TensorView residual,
                     TensorView hidden, ForwardContext& context) const;

  ModelConfig config_;
  IndexRange own_;  // this rank's layers of the model
  VocabularyShard vocabulary_;
  std::optional<VocabParallelEmbedding> embedding_;  // only if the rank embeds
  std::deque<Layer> layers_;                         // a deque: parameters keep their addresses
  std::optional<RmsNorm> final_norm_;                // only if the rank samples, like lm_head_
  std::optional<LmHead> lm_head_;
  Tensor cos_sin_;  // fp32 [max_model_len, head_dim]
};

}  // namespace maniple
