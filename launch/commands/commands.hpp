// The commands: each takes its options and returns when its work is done, or throws.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/fault_news.hpp>
#include <launch/options.hpp>
#include <launch/rank_log.hpp>
#include <launch/start_deadline.hpp>
#include <launch/stop_clock.hpp>
#include <parallel/world.hpp>
#include <runtime/control/neighbours.hpp>

#include <optional>

namespace maniple {

// What a rank reports to while it works.
struct Reporters {
  RankLog& log;
  FaultNews& faults;
  std::optional<StartDeadline>& start;  // ends when the ranks watch each other
  Neighbours& neighbours;
  const StopClock* clock = nullptr;  // rank 0
};

// Collective. The exit code of rank 0; the other ranks return complete. Throws AgreedError (rank 0, which has
// told it) and SilentExit (the others) when all ranks agreed to end; after anything else the other ranks are
// still waiting.
ExitCode run_generate(World& world, const GenerateOptions& options, const Reporters& reporters);
// The same.
ExitCode run_doctor(World& world, const DoctorOptions& options, const Reporters& reporters);

// One process, no weights, no MPI.
ExitCode run_tokenize(const TokenizeOptions& options);
ExitCode run_status(const StatusOptions& options);
ExitCode run_merge(const MergeOptions& options);

}  // namespace maniple
