// A model as the runtime sees it, or the range of its layers that a rank holds: weights to load, pages to
// fill, tokens to logits.
#pragma once

#include <layers/forward_context.hpp>
#include <layers/model_config.hpp>
#include <layers/weight.hpp>
#include <parallel/shard.hpp>

#include <memory>
#include <span>

namespace maniple {

struct StepBatch {
  AttentionBatch attention;
  ConstTensorView sampled_rows;  // int32 [rows]: tokens whose logits are wanted
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Parameters parameters() = 0;
  // Tensors of the checkpoint that are known and not used ("lm_head.weight" of a tied model).
  virtual bool ignores(std::string_view source) const = 0;

  virtual int64_t num_layers() const = 0;  // on this rank
  virtual HeadLayout heads() const = 0;    // on this rank
  virtual VocabularyShard vocabulary() const = 0;
  // Called once, before the first forward: tables that depend on the longest sequence.
  virtual void prepare(Ops& ops, int64_t max_model_len) = 0;

  // input: int32 token ids [tokens] where the rank embeds; else rows of the residual stream [tokens, hidden],
  // in the activation type, which it changes. One entry of pages a layer of this rank. Returns fp32 [sampled
  // rows, vocabulary().padded] where the rank samples, else the rows of the residual stream; from the
  // workspace.
  virtual TensorView forward(const StepBatch& batch, TensorView input, std::span<const KvPages> pages,
                             ForwardContext& context) = 0;
};

// The part of a model that a rank holds: RankPlan{} holds all of it. Throws Indivisible (parallel/shard) when
// a dimension does not divide by the tensor size.
std::unique_ptr<Model> make_model(const ModelConfig& config, const RankPlan& plan);

}  // namespace maniple
