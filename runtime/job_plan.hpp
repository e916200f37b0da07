// The plan of the job: what follows from the number of ranks, the options, the kind of device and the model's
// config, before anything is made. A pure function, the same on every rank; whoever needs a group, a part of
// the model or a level of reproducibility asks here.
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

// Memory of a rank.
struct RankNeeds {
  size_t weight_bytes = 0;
  KvGeometry kv;  // says the bytes of a block
};

struct JobPlan {
  GridSize grid;
  bool tensor_groups_span_nodes = false;
  uint32_t steps_in_flight = 1;  // plans that may be unanswered: 2 where the device works beside the host
  // In force, and why it is not the one asked for; empty where it is. On CPUs `grid`, or `batch` where a size
  // forbids it, whatever was asked for; on GPUs `off`.
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
  // The rank that answers for its replica.
  bool reports(int rank) const { return reporter_of(grid, position_in(grid, rank).data) == rank; }
};

// Why there is no plan: a field of EngineOptions does not fit what limits it.
struct PlanRefusal {
  enum class Field : uint8_t { tensor_size, max_model_len, max_num_batched_tokens };
  Field field = Field::tensor_size;
  int64_t value = 0;         // that was asked for
  std::string limit;         // "ranks", "kv heads", "positions", "max_num_seqs"
  int64_t limit_value = 0;   // of these
  bool of_model = false;     // the limit is the model's
  std::vector<int> fitting;  // values that would do; the last one where all below would
};

// options.backend.kind: of all ranks, not automatic. config: null where there is no model, and then the plan
// has what does not depend on one. Throws Error (internal) for no ranks.
std::variant<JobPlan, PlanRefusal> plan_job(std::span<const RankLocation> locations,
                                            const EngineOptions& options, const ModelConfig* config);

// Whether tensor groups of this size have ranks on several nodes.
bool tensor_groups_span_nodes(std::span<const RankLocation> locations, int tensor_size);

}  // namespace maniple
