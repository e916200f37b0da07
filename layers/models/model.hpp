// A model, or a rank's range of its layers, as the runtime uses it: parameters to load, KV pages to fill,
// tokens in and logits out.
#pragma once

#include <layers/forward_context.hpp>
#include <layers/model_config.hpp>
#include <layers/weight.hpp>
#include <parallel/shard.hpp>

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace maniple {

struct StepBatch {
  AttentionBatch attention;
  ConstTensorView sampled_rows;             // int32 [rows]: tokens whose logits are wanted
  std::vector<AttentionBatch> blocks = {};  // ForwardContext::blocks
  // For layers with a window, where their pages are of another pool: the same tokens with tables and slots of their own.
  std::optional<AttentionBatch> windowed = {};

  const AttentionBatch& attention_of(bool window) const { return window && windowed ? *windowed : attention; }
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Parameters parameters() = 0;
  // True for a tensor of the checkpoint that the model knows and does not use ("lm_head.weight", if tied).
  virtual bool ignores(std::string_view source) const = 0;

  virtual int64_t num_layers() const = 0;  // on this rank
  virtual HeadLayout heads() const = 0;    // on this rank
  // Of each layer of this rank, the tokens that a token attends to; 0: all.
  virtual std::vector<int64_t> windows() const = 0;
  virtual VocabularyShard vocabulary() const = 0;
  // The table that token ids look up, and the matrix that makes logits: the same one with tied weights. Null on a rank that
  // does not embed or does not sample.
  virtual const Parameter* embedding() const = 0;
  virtual const Parameter* head() const = 0;
  // For each sparse layer of this rank, how many tokens chose each expert of the model so far: int32, on the device.
  virtual std::vector<ConstTensorView> expert_counts() const = 0;
  // Makes the tables that depend on the longest sequence. Call it once, before the first forward.
  virtual void prepare(Ops& ops, int64_t max_model_len) = 0;

  // Which rows of the residual stream the rank holds in a step of so many tokens.
  virtual ResidualRows rows(int64_t tokens, const Groups& groups) const = 0;
  // input: int32 token ids [tokens] if the rank embeds; else its rows of the residual stream [rows, hidden] in
  // the activation type, which forward overwrites. pages: one entry per layer of this rank. Returns fp32
  // [sampled rows, vocabulary().padded] in the workspace if the rank samples, else its rows of the residual stream.
  virtual TensorView forward(const StepBatch& batch, TensorView input, std::span<const KvPages> pages,
                             ForwardContext& context) = 0;
};

// Makes the part of a model that a rank holds; with RankPlan{} the whole model. Throws Indivisible
// (parallel/shard) when the tensor size does not divide a dimension.
std::unique_ptr<Model> make_model(const ModelConfig& config, const RankPlan& plan);

}  // namespace maniple
