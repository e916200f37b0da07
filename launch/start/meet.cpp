#include <launch/options/same_options.hpp>
#include <launch/output/report.hpp>
#include <launch/process/command_output.hpp>
#include <launch/process/exit_code.hpp>
#include <launch/process/launcher.hpp>
#include <launch/process/signals.hpp>
#include <launch/start/command.hpp>
#include <launch/supervision/shutdown.hpp>
#include <parallel/mpi/mpi_world.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/collective_phase.hpp>

#include <chrono>
#include <cstdlib>
#include <memory>

namespace maniple {
namespace {

// An error that not all ranks know of: the others wait, so the whole job has to end.
int fail_alone(World& world, const Error& error) {
  const bool alone = world.size() == 1;
  const std::string& host = world.locations()[static_cast<size_t>(world.rank())].host;
  say(error_block(error, alone ? "" : fmt::format("rank {} on {}", world.rank(), host)));
  const int code = static_cast<int>(error.code());
  if (!alone) world.abort(code);
  return code;
}

std::unique_ptr<World> join_world(const JobOptions& options, std::optional<StartDeadline>& start) {
  const Launch& launch = options.launch;
  const auto mpi_list = [] {
    return output_of({"srun", "--mpi=list"}, std::chrono::seconds(2)).value_or("");
  };
  if (!launch.under_mpi) check_launch(launch, 1, mpi_library(), mpi_list);
  std::unique_ptr<World> world;
  if (launch.under_mpi) {
    start.emplace(launch, end_process, options.start_deadline);
    const char* const order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    world = make_mpi_world(end_process, options.transport,
                           {.windows = options.nccl_windows, .orders_launches = order && *order == '1'},
                           launch.settle);
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

// Call after MPI_Init, which changes the environment that squeue inherits.
std::optional<StopClock> start_clock(const JobTask& task) {
  const JobOptions& options = *task.options;
  if (!task.stops_by_clock || options.launch.rank != 0) return std::nullopt;
  const auto stop = [quiet = options.quiet](WallClock::time_point end) { stop_before_the_end(end, quiet); };
  return std::optional<StopClock>(std::in_place, options.time_limit, stop);
}

// No health monitor runs yet, so rank 0 reports a difference itself.
void compare_options(World& world, const JobOptions& options) try {
  refuse_different_options(world, options.given, options.mistake);
} catch (const CollectiveError& error) {
  say(error_block(error));
  throw;
}

int run_watched(World& world, const JobTask& task, std::optional<StartDeadline>& start, NodePeers& peers) {
  const std::optional<StopClock> clock = start_clock(task);
  RankLog log;
  FaultReporter faults(world, task.options->launch.job, log);
  try {
    return exit_code_of_rank([&] {
      compare_options(world, *task.options);
      return task.run(world, {log, faults, start, peers, clock ? &*clock : nullptr});
    });
  } catch (const std::exception& error) {  // the health monitors did not run
    return fail_alone(world, error_of(error));
  }
}

}  // namespace

int run_on_all_ranks(const JobTask& task) {
  const JobOptions& options = *task.options;
  // Between nodes NCCL registers the buffers of captured steps with the network,
  // and may then wait for ever without a message (NVIDIA/nccl, issue 2389).
  if (options.allow_cross_node_tp) ::setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  // Two communicators on one GPU, a stage's and a tensor group's, need one order of launches (parallel/nccl/nccl_groups.cpp).
  if (options.engine.pipeline_size > 1 && options.engine.tensor_size > 1)
    ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  std::optional<StartDeadline> start;
  std::unique_ptr<World> world = join_world(options, start);
  // Never deleted: the last rank waits until the processes of the
  // others have ended, so only the kernel may close its sockets.
  static NodePeers* const peers = new NodePeers(*world);
  const int code = run_watched(*world, task, start, *peers);
  // srun ends a stopped rank only after another rank has left with an error.
  shut_down(std::move(world), *peers, Deadlines::within(options.deadline).progress,
            code == 0 ? ExitCode::fault : ExitCode{code});
  return code;
}

}  // namespace maniple
