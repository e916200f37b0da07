// From command line to running ranks: finds out who started us, joins the other ranks, and turns every end
// into one message and one exit code.
#include <launch/commands/commands.hpp>
#include <launch/options/same_options.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/rank_log.hpp>
#include <launch/output/report.hpp>
#include <launch/process/command_output.hpp>
#include <launch/process/launcher.hpp>
#include <launch/process/signals.hpp>
#include <launch/process/stop_clock.hpp>
#include <launch/supervision/fault_reporter.hpp>
#include <launch/supervision/node_peers.hpp>
#include <launch/supervision/shutdown.hpp>
#include <launch/supervision/start_deadline.hpp>
#include <parallel/mpi/mpi_world.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/collective_phase.hpp>

#include <unistd.h>

#include <chrono>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

namespace maniple {
namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

int report(const Error& error, const std::string& speaker = {}) {
  say(error_block(error, speaker));
  return static_cast<int>(error.code());
}

// An error that not all ranks know of: the others wait, so the whole job has to end.
int fail_alone(World& world, const Error& error) {
  const bool alone = world.size() == 1;
  const std::string& host = world.locations()[static_cast<size_t>(world.rank())].host;
  const int code = report(error, alone ? "" : fmt::format("rank {} on {}", world.rank(), host));
  if (!alone) world.abort(code);
  return code;
}

std::unique_ptr<World> join_world(const Launch& launch, const JobOptions& options,
                                  std::optional<StartDeadline>& start) {
  const auto mpi_list = [] {
    return output_of({"srun", "--mpi=list"}, std::chrono::seconds(2)).value_or("");
  };
  if (!launch.under_mpi) check_launch(launch, 1, mpi_library(), mpi_list);
  std::unique_ptr<World> world;
  if (launch.under_mpi) {
    start.emplace(launch, end_process, options.start_deadline);
    world = make_mpi_world(end_process, options.transport, launch.settle);
    start->joined();
  } else {
    world = std::make_unique<SelfWorld>(end_process);
  }
  check_launch(launch, world->size(), mpi_library(), mpi_list);
  return world;
}

void stop_before_the_end(WallClock::time_point end, bool quiet) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(end - WallClock::now());
  if (!quiet) fmt::print(stderr, "maniple: stop: the job's time is over in {} s\n", left.count());
  InterruptScope::stop_by_clock();
}

template <typename Options>
constexpr bool has_work_to_stop =
    std::same_as<Options, GenerateOptions> || std::same_as<Options, BenchOptions>;

// Call after MPI_Init, which changes the environment that squeue inherits.
template <typename Options>
std::optional<StopClock> start_clock(const Options& options) {
  if constexpr (has_work_to_stop<Options>) {
    if (options.launch.rank != 0) return std::nullopt;
    const auto stop = [quiet = options.quiet](WallClock::time_point end) { stop_before_the_end(end, quiet); };
    return std::optional<StopClock>(std::in_place, options.time_limit, stop);
  } else {
    return std::nullopt;
  }
}

// No health monitor runs yet, so rank 0 reports a difference itself.
void compare_options(World& world, const JobOptions& options) try {
  refuse_different_options(world, options.given, options.mistake);
} catch (const CollectiveError& error) {
  report(error);
  throw;
}

template <typename Options>
using Command = ExitCode (*)(World& world, const Options& options, const Reporters& reporters);

template <typename Options>
int run_watched(World& world, const Options& options, Command<Options> command,
                std::optional<StartDeadline>& start, NodePeers& peers) {
  const std::optional<StopClock> clock = start_clock(options);
  RankLog log;
  FaultReporter faults(world, options.launch.job, log);
  try {
    compare_options(world, options);
    return static_cast<int>(command(world, options, {log, faults, start, peers, clock ? &*clock : nullptr}));
  } catch (const SilentExit&) {
    return 0;
  } catch (const CollectiveError& error) {
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {  // the health monitors did not run
    return fail_alone(world, error_of(error));
  }
}

template <typename Options>
int on_all_ranks(Options options, const Launch& launch, Command<Options> command) {
  options.launch = launch;
  options.time_limit.slurm_job = launch.job;
  options.time_limit.slurm_end = launch.job_end;
  // Between nodes NCCL registers the buffers of captured steps with the network,
  // and may then wait for ever without a message (NVIDIA/nccl, issue 2389).
  if (options.allow_cross_node_tp) ::setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  std::optional<StartDeadline> start;
  std::unique_ptr<World> world = join_world(launch, options, start);
  // Never deleted: the last rank waits until the processes of the
  // others have ended, so only the kernel may close its sockets.
  static NodePeers* const peers = new NodePeers(*world);
  const int code = run_watched(*world, options, command, start, *peers);
  // srun ends a stopped rank only after another rank has left with an error.
  shut_down(std::move(world), *peers, Deadlines::within(options.deadline).progress,
            code == 0 ? ExitCode::fault : ExitCode{code});
  return code;
}

ExitCode print(const Notice& notice) {
  std::fputs(notice.text.c_str(), stdout);
  flush_stdout();
  return ExitCode::complete;
}

// Each by the type of its options.
constexpr std::tuple commands{&run_generate, &run_doctor, &run_bench,  &run_tokenize, &run_convert,
                              &run_status,   &run_merge,  &run_report, &run_scaling,  &print};

template <typename Options>
int run(Options options, const Launch& launch) {
  if constexpr (requires { options.overwrite; }) options.overwrite.requeued = launch.requeued;
  if constexpr (std::derived_from<Options, JobOptions>) {
    return on_all_ranks(std::move(options), launch, std::get<Command<Options>>(commands));
  } else {
    if (launch.rank != 0) return 0;
    end_on_closed_pipe();
    return static_cast<int>(std::get<ExitCode (*)(const Options&)>(commands)(options));
  }
}

std::variant<CommandLine, Error> read_command_line(const std::vector<std::string>& args) try {
  return parse_arguments(args);
} catch (const std::exception& error) {
  return error_of(error);
}

ExitCode run_no_command(World&, const JobOptions&, const Reporters&) { return ExitCode::usage; }

// The other ranks may have a valid command line, so this rank joins them to report its mistake.
int report_bad_command_line(const Error& mistake, const Launch& launch) {
  if (!launch.under_mpi) return launch.rank == 0 ? report(mistake) : 0;
  JobOptions options;
  options.mistake = mistake;
  options.deadline = options.start_deadline = std::chrono::minutes(1);
  return on_all_ranks(options, launch, run_no_command);
}

int guarded_main(const std::vector<std::string>& args, const Launch& launch) try {
  std::variant<CommandLine, Error> command = read_command_line(args);
  const Error* mistake = std::get_if<Error>(&command);
  if (mistake) return report_bad_command_line(*mistake, launch);
  return std::visit([&](auto& options) { return run(std::move(options), launch); },
                    std::get<CommandLine>(command));
} catch (const std::exception& error) {
  // All ranks see the same launch mistake, and rank 0 reports it. The launcher may
  // kill all copies when the first one leaves, so the others leave a second later.
  const Error failure = error_of(error);
  if (launch.rank == 0 || failure.code() != ExitCode::preflight) return report(failure);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return static_cast<int>(failure.code());
}

}  // namespace

}  // namespace maniple

int main(int count, char** arguments) {
  maniple::Launch launch = maniple::detect_launch(maniple::environment);
  for (char** variable = environ; *variable; ++variable) launch.environment.emplace_back(*variable);
  maniple::prepare_for_stops(launch.rank);
  maniple::protect_standard_streams();
  return maniple::guarded_main({arguments + 1, arguments + count}, launch);
}
