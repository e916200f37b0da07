// The plan of the job: groups, each rank's part of the model, memory, level of reproducibility. A pure
// function of the ranks' locations, the options and the model's config, with the same result on every rank.
// It runs before anything is made.
#pragma once

#include <layers/model_config.hpp>
#include <parallel/rank_plan.hpp>
#include <parallel/world.hpp>
#include <runtime/engine_options.hpp>
#include <runtime/execution/kv_cache.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace maniple {

class QuantScheme;

// The memory that a rank needs.
struct RankNeeds {
  size_t weight_bytes = 0;
  KvGeometry kv;  // gives the bytes of a block
};

struct JobPlan {
  GridSize grid;
  bool tensor_groups_span_nodes = false;
  uint32_t steps_in_flight = 1;  // plans that may be unanswered
  uint32_t step_tokens = 0;      // most of one step
  uint32_t block_tokens = 0;     // of a block of the KV cache, over the ranks that share a context
  // The level in force, and why it is not that of the options, or not `grid`. CPUs: always `grid`, or `batch`
  // where a size forbids `grid`. GPUs: `off`.
  Repro repro = Repro::grid;
  std::string repro_reason;

  // Where there is a model:
  std::vector<IndexRange> stages;  // layers of each
  uint32_t max_model_len = 0;      // tokens of prompt and completion
  std::vector<RankNeeds> needs;    // by place in a replica

  RankPlan rank(int rank) const;
  const RankNeeds& needs_of(int rank) const {
    return needs[static_cast<size_t>(rank % grid.replica_ranks())];
  }
  // True if the rank sends its replica's results to rank 0.
  bool sends_results(int rank) const { return result_rank_of(grid, position_in(grid, rank).data) == rank; }
};

// Why there is no plan: a field of EngineOptions does not fit a limit.
struct PlanRefusal {
  enum class Field : uint8_t {
    tensor_size,
    context_size,
    expert_size,
    pipeline_size,
    pipeline_layers,
    max_model_len,
    max_num_batched_tokens,
    repro
  };
  Field field = Field::tensor_size;
  int64_t value = 0;  // of the field
  // "ranks", "tensor_size", "experts", "inputs of a block", "layers", "stages", "kv heads", "ranks of a kv head", "GPUs", "positions",
  // "sliding_window", "max_num_seqs"; repro: the reason
  std::string limit;
  int64_t limit_value = 0;
  bool of_model = false;  // the limit is the model's
  // tensor_size, context_size, expert_size, pipeline_size: values that would fit (context_size with the limit
  // "kv heads": tensor sizes); repro: tensor sizes; other fields: the limit alone
  std::vector<int> fitting;
};

// options.backend.kind: not automatic, the same on all ranks. config: null without a model; the plan then
// holds only what does not depend on one. Throws Error (internal) without ranks.
std::variant<JobPlan, PlanRefusal> plan_job(std::span<const RankLocation> locations,
                                            const EngineOptions& options, const ModelConfig* config);

// The type of keys and values: of the options, else as the checkpoint asks, else that of the activations.
DType kv_cache_dtype(const EngineOptions& options, const QuantScheme& scheme);

// How many ranks of a tensor group hold other experts, unless options say: as many as leave each at least twice the
// experts of a token, or small batches would leave ranks without work; more where fewer would cut blocks of inputs.
int default_expert_size(int tensor_size, const ModelConfig& config);

// For messages: "tensor 2 x pipeline 2 x data 2", without axes of one rank but tensor and data; the layers of
// each stage, "layers 0-2 | 3-4", empty for a single stage.
std::string grid_text(const GridSize& grid);
std::string stages_text(const JobPlan& plan);
std::string layers_text(const IndexRange& layers);  // "layers 3-4"

// Whether any tensor group of this size has ranks on several nodes.
bool tensor_groups_span_nodes(std::span<const RankLocation> locations, int tensor_size);

}  // namespace maniple
