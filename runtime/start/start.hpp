// The three steps of a start, each with what the one before returned: agree, place, load. They know no option names, no environment
// and no stderr. All are collective, and throw CollectiveError or SilentExit where any rank fails (runtime/collective_phase.hpp).
#pragma once

#include <kernels/backend.hpp>
#include <parallel/world.hpp>
#include <runtime/engine.hpp>
#include <runtime/engine_options.hpp>
#include <runtime/job_plan.hpp>
#include <runtime/shared_model.hpp>

#include <optional>
#include <span>
#include <vector>

namespace maniple {

// What all ranks know before they look at processors and weights.
struct AgreedJob {
  std::optional<SharedModel> model;  // absent where the options name none
  JobPlan plan;
};
// A layout that does not fit the ranks is refused before files are read. begun: rank 0's, see plan_job.
AgreedJob agree(World& world, const EngineOptions& options, std::optional<DType> begun = {});

// Which processors a rank works on.
struct RankPlace {
  int threads = 1;
  std::vector<int> cpus;  // logical CPUs to pin the threads to, one each; empty: CPUs are shared, leave the
                          // threads to the system
  int gpu = 0;            // among those that this process sees; of a job on GPUs
};
// Throws Error (preflight) if there is no GPU for this rank.
RankPlace place(World& world, const EngineOptions& options, const JobPlan& plan);

// This rank's backend in its place.
Backend make_backend(World& world, const JobPlan& plan, const RankPlace& place);
// This rank's part of the model, ready to serve: backend, tokenizer (rank 0), groups, weights, KV cache. The job has a model; the
// references must outlive the engine.
Engine load(World& world, const EngineOptions& options, const AgreedJob& job, const RankPlace& place,
            RankActivity& activity);

// Logical CPUs that this process may use, ascending.
std::vector<int> own_cpus();
// masks: the logical CPUs that each rank may use, ascending. Ranks of a node with the same mask share it
// evenly. `threads` overrides the number.
RankPlace share_cpus(std::span<const std::vector<int>> masks, const std::vector<RankLocation>& locations,
                     int rank, std::optional<int> threads);

}  // namespace maniple
