// The start of a job on ranks that have met and watch each other. This file alone knows the whole order:
//
//   agree   backend, files of the model, plan                            runtime/start/agree
//           generate opens its run directory
//   check   the facts of all ranks; a launch that does not fit ends      launch/preflight
//   place   threads, CPUs and GPU of each rank                           runtime/start/place
//
// What serves requests then calls load (runtime/start/load).
#pragma once

#include <launch/options/job_options.hpp>
#include <launch/preflight/preflight.hpp>
#include <launch/supervision/supervision.hpp>
#include <runtime/start/start.hpp>

#include <cstdint>
#include <functional>
#include <optional>

namespace maniple {

struct PlacedJob {
  AgreedJob agreed;
  Preflight preflight;
  RankPlace place;  // of this rank
};

// What a command does between the steps. Both are collective.
struct BetweenSteps {
  // The bytes that the run directory will need (rank 0; 0: not known), or nothing on all ranks: no work is left.
  std::function<std::optional<uint64_t>(const AgreedJob&)> agreed;
  // False on all ranks: the start ends here. Throws where it reports a refusal. Without it the checks are reported.
  std::function<bool(const PlacedJob&)> checked = nullptr;
};

// Collective. The type that the run directory was begun in, where that decides (rank 0; nothing elsewhere).
std::optional<DType> begun_type(World& world, const JobOptions& options);

// Collective. Nothing where a step between ended the start.
std::optional<PlacedJob> start(World& world, const JobOptions& options, const BetweenSteps& between);

// Collective. Runs the work while the ranks watch each other; vitals: see HealthMonitor.
ExitCode watched(World& world, const JobOptions& options, const Supervision& supervision,
                 VitalsObserver* vitals, const std::function<ExitCode(HealthMonitor&)>& work);

// Collective, for `checked`: rank 0 says the warnings and, unless quiet, how many checks there were; throws the first refusal.
void report_checks(World& world, const Preflight& preflight, bool quiet);

}  // namespace maniple
