// A model as the runtime sees it: weights to load, pages to fill, tokens to logits.
#pragma once

#include <layers/forward_context.hpp>
#include <layers/models/model_config.hpp>
#include <layers/weight.hpp>
#include <parallel/shard.hpp>

#include <memory>
#include <span>

namespace maniple {

struct StepBatch {
  ConstTensorView token_ids;  // int32 [tokens]
  AttentionBatch attention;
  ConstTensorView sampled_rows;  // int32 [rows]: tokens whose logits are wanted
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Parameters parameters() = 0;
  // Tensors of the checkpoint that are known and not used ("lm_head.weight" of a tied model).
  virtual bool ignores(std::string_view source) const = 0;

  virtual int64_t num_layers() const = 0;
  virtual HeadLayout heads() const = 0;  // on this rank
  virtual VocabularyShard vocabulary() const = 0;
  // Called once, before the first forward: tables that depend on the longest sequence.
  virtual void prepare(Ops& ops, int64_t max_model_len) = 0;

  // One entry of pages a layer. Returns fp32 [sampled rows, vocabulary().padded], from the workspace.
  virtual TensorView forward(const StepBatch& batch, std::span<const KvPages> pages,
                             ForwardContext& context) = 0;
};

// Throws Error (input) when the shape does not divide by the tensor size.
std::unique_ptr<Model> make_model(const ModelConfig& config, TensorRank tensor);

}  // namespace maniple
