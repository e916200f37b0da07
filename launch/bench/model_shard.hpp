// A tensor rank's part of a model that runs alone: the model's own layers with random weights, in a group that exchanges nothing.
// So one rank can measure the shard of any tensor size.
#pragma once

#include <kernels/backend.hpp>
#include <layers/models/cost.hpp>
#include <runtime/execution/batch_builder.hpp>
#include <runtime/execution/kv_cache.hpp>
#include <runtime/job_plan.hpp>

#include <atomic>
#include <functional>
#include <memory>

namespace maniple {

class ModelShard {
 public:
  // config: cut to the layers that are to be made. progress: grows while the shard is loaded, and shows the layer that runs.
  ModelShard(const ModelConfig& config, TensorRank place, const EngineOptions& engine, Backend& backend,
             std::atomic<uint32_t>& progress);
  // Makes the weights. Until then only their cost is known.
  void load();
  int64_t num_layers() const { return layers_->num_layers(); }
  const ModelCost& cost_of_layers() const { return cost_of_layers_; }  // of all of them
  const ModelCost& cost_of_head() const { return cost_of_head_; }

  // Enqueues work once. Valid until another one is asked for.
  using Pass = std::function<void()>;
  // All layers on so many tokens, in sequences of at most 16, so that attention costs next to nothing.
  Pass layers(int64_t tokens);
  // Logits of so many rows, and the best token of each.
  Pass head(int64_t rows);
  // Attention of all layers: `past` tokens of each sequence are in the KV cache, and `query` follow. The cache has at most
  // `memory` bytes, but room for a sequence; where that is too little, sequences share its blocks.
  Pass attention(int64_t sequences, int64_t query, int64_t past, uint64_t memory);

 private:
  KvLayout kv_layout(int64_t block_size) const;
  // Tokens in sequences that compute `query` each. Makes the cache.
  StepBatch batch_of(int64_t tokens, int64_t query, int64_t past, const KvLayout& layout, int64_t num_blocks);

  const ModelConfig config_;
  const EngineOptions& engine_;
  Device& device_;
  Ops& ops_;
  Groups groups_;
  std::unique_ptr<Model> layers_, head_;
  ModelCost cost_of_layers_, cost_of_head_;
  Workspace workspace_;
  ForwardContext context_;

  // Of the latest pass.
  std::unique_ptr<BatchBuilder> builder_;
  std::unique_ptr<KvCache> cache_;
  Tensor input_, output_, draws_, candidates_;
};

}  // namespace maniple
