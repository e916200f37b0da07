// Obeys step plans on one rank: mirrors the running sequences, runs the model, samples.
#pragma once

#include <layers/models/model.hpp>
#include <layers/sampler.hpp>
#include <runtime/execution/batch_builder.hpp>
#include <runtime/execution/kv_cache.hpp>
#include <runtime/scheduling/sequence_table.hpp>
#include <runtime/scheduling/step_plan.hpp>

#include <atomic>
#include <deque>
#include <map>

namespace maniple {

struct RunnerLimits {
  uint32_t max_num_seqs = 0;
  uint32_t max_num_batched_tokens = 0;
  uint32_t max_model_len = 0;
  uint32_t block_size = 0;

  BatchLimits batch() const;
};

// The largest step without memory or work: prepares its products, and returns the bytes of scratch it takes.
size_t dry_run(Model& model, const RankPlan& plan, Ops& ops, const RunnerLimits& limits, DType activation,
               int64_t vocabulary_size);

// How much a runner takes and serves.
struct RunnerSizes {
  RunnerLimits limits;
  KvGeometry kv;
  uint32_t num_blocks = 0;
  size_t scratch = 0;  // what dry_run said
  DType activation = DType::bf16;
  int64_t vocabulary_size = 0;
};

// Batch sizes that decode steps are padded to, so that one graph serves several: 1, 2, 4, then in steps that
// grow from 4 to 32. The last is `most`.
std::vector<size_t> decode_buckets(size_t most);

class ModelRunner {
 public:
  // Everything passed by reference must outlive the runner. `layer` is where the forward says how far it is.
  ModelRunner(Model& model, Ops& ops, const Groups& groups, const RunnerSizes& sizes,
              std::atomic<uint32_t>& layer);

  // Collective, before the first plan: records the decode step of each bucket. Device and groups must be able
  // to.
  void capture_decodes();
  size_t num_graphs() const { return graphs_.size(); }

  // Starts the plan's work; does not wait for that of earlier ones. Throws Error (fault) when the plan does
  // not fit this rank's state.
  void launch(const StepPlan& plan);
  // The result of the oldest plan that was launched and not collected; waits for it if it is not ready.
  StepResult collect();
  bool ready() const { return launched_.front().rows.ready(); }

 private:
  struct Launched {
    uint64_t number = 0;
    std::vector<uint32_t> counts;
    PendingRows rows;
  };

  // A decode step up to its logits.
  struct DecodeGraph {
    std::unique_ptr<Graph> graph;
    TensorView logits;
    size_t workspace;  // that the graph uses
  };

  TensorView forward(const StepBatch& batch);
  TensorView replay(const DecodeGraph& decode);

  size_t max_num_seqs_;
  Model& model_;
  SequenceTable table_;
  BatchBuilder builder_;
  KvCache cache_;
  Sampler sampler_;
  Workspace workspace_;
  ForwardContext context_;
  std::deque<Launched> launched_;
  std::map<size_t, DecodeGraph> graphs_;  // by bucket
};

}  // namespace maniple
