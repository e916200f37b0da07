// The vocabulary, sharded over the tensor group: token ids to hidden states, and hidden states to logits.
#pragma once

#include <layers/forward_context.hpp>
#include <layers/weight.hpp>
#include <parallel/shard.hpp>

#include <string>

namespace maniple {

class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(const std::string& source, int64_t vocabulary_size, int64_t width,
                         TensorRank tensor);
  // ids int32 [tokens] -> [context.rows of tokens, width], the same for every tensor size.
  TensorView forward(ConstTensorView ids, ForwardContext& context) const;
  void append_parameters(Parameters& parameters) { parameters.push_back(&table_); }

  const Parameter& table() const { return table_; }
  const VocabularyShard& shard() const { return shard_; }

 private:
  int64_t width_;
  VocabularyShard shard_;
  Parameter table_;  // [padded shard, width]
};

// The weight is its own or, with tied weights, the embedding's table; the embedding must then outlive it.
class LmHead {
 public:
  LmHead(const std::string& source, int64_t vocabulary_size, int64_t width, TensorRank tensor);
  explicit LmHead(const VocabParallelEmbedding& tied);
  // hidden [rows, width] -> fp32 [rows, padded shard]. Columns past shard().valid are padding.
  TensorView forward(ConstTensorView hidden, ForwardContext& context) const;
  void append_parameters(Parameters& parameters) {
    if (!tied_) parameters.push_back(&own_);
  }
  const Parameter& weight() const { return tied_ ? *tied_ : own_; }
  const VocabularyShard& shard() const { return shard_; }

 private:
  VocabularyShard shard_;
  const Parameter* tied_ = nullptr;
  Parameter own_;
};

}  // namespace maniple
