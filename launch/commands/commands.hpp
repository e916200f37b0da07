// The commands: each takes its options and returns when its work is done, or throws.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/options/options.hpp>
#include <launch/output/rank_log.hpp>
#include <launch/process/stop_clock.hpp>
#include <launch/supervision/fault_reporter.hpp>
#include <launch/supervision/node_peers.hpp>
#include <launch/supervision/start_deadline.hpp>
#include <parallel/world.hpp>

#include <optional>

namespace maniple {

// The targets of a rank's reports while it works.
struct Reporters {
  RankLog& log;
  FaultReporter& faults;
  std::optional<StartDeadline>& start;  // reset once the health monitor runs
  NodePeers& peers;
  const StopClock* clock = nullptr;  // rank 0
};

// Collective. Returns the exit code on rank 0; the other ranks return complete. When
// all ranks end together, rank 0 reports the reason and throws CollectiveError, and the
// others throw SilentExit. After any other exception the other ranks are still waiting.
ExitCode run_generate(World& world, const GenerateOptions& options, const Reporters& reporters);
// Collective, as run_generate.
ExitCode run_doctor(World& world, const DoctorOptions& options, const Reporters& reporters);
ExitCode run_bench(World& world, const BenchOptions& options, const Reporters& reporters);

// One process, no weights, no MPI.
ExitCode run_tokenize(const TokenizeOptions& options);
ExitCode run_convert(const ConvertOptions& options);
ExitCode run_status(const StatusOptions& options);
ExitCode run_merge(const MergeOptions& options);
ExitCode run_report(const ReportOptions& options);
ExitCode run_scaling(const ScalingOptions& options);

}  // namespace maniple
