// The plan of the job: what is in force on all ranks. Backend, types, groups, each rank's part of the model, memory, level of
// reproducibility. A pure function of the ranks' locations, the options, the backend that all ranks have and the model's config, with the
// same result on every rank. It runs before anything is made.
#pragma once

#include <layers/model_config.hpp>
#include <parallel/rank_plan.hpp>
#include <parallel/world.hpp>
#include <runtime/engine_options.hpp>
#include <runtime/execution/kv_cache.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace maniple {

// The memory that a rank needs.
struct RankNeeds {
  size_t weight_bytes = 0;
  KvGeometry kv;  // gives the bytes of a block
};

// Blocks of a KV cache, and of the pool of its layers with a window.
struct KvBlocks {
  size_t blocks = 0, window_blocks = 0;

  size_t bytes(const KvGeometry& kv) const {
    return blocks * kv.block_bytes() + window_blocks * kv.window_block_bytes();
  }
};

struct JobPlan {
  BackendChoice backend;  // neither is automatic
  GridSize grid;
  bool tensor_groups_span_nodes = false;
  uint32_t steps_in_flight = 1;  // plans that may be unanswered
  uint32_t step_tokens = 0;      // most of one step
  uint32_t max_rows = 0;         // of logits in a step
  uint32_t block_tokens = 0;     // of a block of the KV cache, over the ranks that share a context
  // The level in force, and why it is not that of the options, or not `grid`. CPUs: always `grid`, or `batch`
  // where a size forbids `grid`. GPUs: `off`.
  Repro repro = Repro::grid;
  std::string repro_reason;

  DType dtype = DType::bf16;  // of weights and activations

  // Where there is a model:
  DType kv_dtype = DType::bf16;    // of keys and values
  std::vector<IndexRange> stages;  // layers of each
  uint32_t max_model_len = 0;      // tokens of prompt and completion
  uint32_t window = 0;           // tokens that layers with KV blocks of their own pool see; 0: there are none
  std::vector<RankNeeds> needs;  // by place in a replica

  RankPlan rank(int rank) const;
  uint64_t tokens_in_flight() const { return uint64_t{step_tokens} * steps_in_flight; }
  const RankNeeds& needs_of(int rank) const {
    return needs[static_cast<size_t>(rank % grid.replica_ranks())];
  }
  // That the longest request holds, and that so many sequences of its length need.
  KvBlocks kv_blocks_of_request() const;
  KvBlocks kv_blocks(uint32_t max_num_seqs) const;
  // So many blocks, and the pool of windows beside them.
  KvBlocks with_windows(size_t blocks, uint32_t max_num_seqs) const;
  // That fit into so much memory, of which a block takes token_bytes beside the cache.
  KvBlocks fitting_blocks(const KvGeometry& kv, uint32_t max_num_seqs, size_t memory,
                          size_t token_bytes = 0) const;
  // True if the rank sends its replica's results to rank 0.
  bool sends_results(int rank) const { return result_rank_of(grid, position_in(grid, rank).data) == rank; }
};

// Why a plan is refused is an Error (usage; input if the model is the limit) that names fields of EngineOptions in back quotes.
// backend: in force, nothing automatic. config: null without a model; the plan then holds only what does not
// depend on one. begun: the type that the run was begun in, which settles what `dtype` leaves open. Throws Error (internal) without ranks.
JobPlan plan_job(std::span<const RankLocation> locations, const EngineOptions& options, BackendChoice backend,
                 const ModelConfig* config = nullptr, std::optional<DType> begun = {});

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
