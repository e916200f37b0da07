// A tensor rank's part of a model that runs alone: the model's own layers with random weights, in a group that exchanges nothing.
// So one rank can measure the shard of any tensor size.
#pragma once

#include <kernels/backend.hpp>
#include <layers/models/cost.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/execution/batch_builder.hpp>
#include <runtime/execution/kv_cache.hpp>
#include <runtime/job_plan.hpp>

#include <atomic>
#include <functional>
#include <memory>

namespace maniple {

class ModelShard {
 public:
  // memory: bytes that weights and KV cache should not stay below, where the model has so many; so they are read from memory
  // here if they are in a job. At least two layers. progress: grows during load(), and shows the layer that runs.
  // plan: for its types.
  ModelShard(const ModelConfig& config, TensorRank place, const EngineOptions& engine, const JobPlan& plan,
             uint64_t memory, Backend& backend, std::atomic<uint32_t>& progress);
  // longest: tokens of a sequence.
  uint64_t bytes_needed(int64_t longest) const;
  // Makes the weights.
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
  // Attention of all layers: `past` tokens of each sequence are in the KV cache, and `query` follow. Sequences share blocks
  // where the cache would be larger than `memory`.
  Pass attention(int64_t sequences, int64_t query, int64_t past);

 private:
  KvLayout kv_layout(int64_t block_size) const;
  // Tokens in sequences that compute `query` each. Makes the cache.
  StepBatch batch_of(int64_t tokens, int64_t query, int64_t past, const KvLayout& layout, int64_t num_blocks);

  const EngineOptions& engine_;
  const JobPlan& plan_;
  const uint64_t memory_;
  const ModelConfig config_;  // with fewer layers
  const std::unique_ptr<const QuantScheme> scheme_;
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
