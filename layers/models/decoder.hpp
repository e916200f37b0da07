// The decoder of the Llama/Qwen family, by its config: pre-norm -> qkv (bias?) -> (q/k norm?) -> rotary ->
// attention -> o -> pre-norm -> gated MLP, or experts in its place; or latent attention. Each layer is what its LayerConfig says.
#pragma once

#include <layers/attention.hpp>
#include <layers/feed_forward.hpp>
#include <layers/latent_attention.hpp>
#include <layers/models/model.hpp>
#include <layers/vocab_embedding.hpp>

#include <deque>
#include <optional>
#include <variant>
#include <vector>

namespace maniple {

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, const RankPlan& plan);

  Parameters parameters() override;
  bool ignores(std::string_view source) const override;
  int64_t num_layers() const override { return own_.size(); }
  HeadLayout heads() const override {
    return std::visit([](const auto& attention) { return attention.heads(); }, layers_.front().attention);
  }
  std::vector<int64_t> windows() const override;
  VocabularyShard vocabulary() const override { return vocabulary_; }
  const Parameter* embedding() const override { return embedding_ ? &embedding_->table() : nullptr; }
  const Parameter* head() const override { return lm_head_ ? &lm_head_->weight() : nullptr; }
  std::vector<ConstTensorView> expert_counts() const override;
  void prepare(Ops& ops, int64_t max_model_len) override;
  ResidualRows rows(int64_t tokens, const Groups& groups) const override {
    return {tokens, config_.hidden_size, *groups.tensor};
  }
  TensorView forward(const StepBatch& batch, TensorView input, std::span<const KvPages> pages,
                     ForwardContext& context) override;

 private:
  struct Layer {
    // name: "model.layers.0"
    Layer(const std::string& name, const LayerConfig& layer, const ModelConfig& config, const RankPlan& plan);
    size_t rotary;  // as in LayerConfig
    int64_t window;
    RmsNorm input_norm;
    std::variant<Attention, LatentAttention> attention;
    RmsNorm post_attention_norm;
    FeedForward feed_forward;
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
  std::vector<Tensor> cos_sin_;  // of each of config.rotaries: fp32 [max_model_len, padded width]
};

}  // namespace maniple
