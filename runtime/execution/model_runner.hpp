// Obeys step plans on one rank: mirrors the running sequences, runs the model, samples.
#pragma once

#include <layers/models/model.hpp>
#include <layers/sampler.hpp>
#include <runtime/execution/batch_builder.hpp>
#include <runtime/execution/kv_cache.hpp>
#include <runtime/scheduling/sequence_table.hpp>
#include <runtime/scheduling/step_plan.hpp>

#include <atomic>

namespace maniple {

struct RunnerLimits {
  uint32_t max_num_seqs = 0;
  uint32_t max_num_batched_tokens = 0;
  uint32_t max_model_len = 0;
  uint32_t block_size = 0;

  BatchLimits batch() const;
};

// Bytes of scratch that the largest step takes, found by a dry forward.
size_t workspace_bytes(Model& model, Device& device, const RunnerLimits& limits, DType activation,
                       int64_t vocabulary_size, int tensor_rank, int tensor_size);

class ModelRunner {
 public:
  // Everything passed by reference must outlive the runner. `layer` is where the forward says how far it is.
  ModelRunner(Model& model, Ops& ops, Communicator& tensor_group, const RunnerLimits& limits,
              const KvGeometry& kv, uint32_t num_blocks, DType activation, int64_t vocabulary_size,
              std::atomic<uint32_t>& layer);

  // Throws Error (fault) when the plan does not fit this rank's state.
  StepResult run(const StepPlan& plan);

 private:
  StepResult answer(const StepPlan& plan, std::span<const SequenceView> sequences,
                    std::span<const SampledRow> sampled);

  Model& model_;
  SequenceTable table_;
  BatchBuilder builder_;
  KvCache cache_;
  Sampler sampler_;
  Workspace workspace_;
  ForwardContext context_;
  std::vector<int32_t> last_tokens_;  // by seat
};

}  // namespace maniple
