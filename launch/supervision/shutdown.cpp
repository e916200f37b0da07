#include <launch/output/report.hpp>
#include <launch/supervision/shutdown.hpp>
#include <launch/supervision/watchdog.hpp>
#include <parallel/self/self_world.hpp>

#include <cstdlib>
#include <optional>
#include <thread>

namespace maniple {
namespace {

// One rank of a node reports. All give the launcher time to pass the message on.
[[noreturn]] void end_without(std::optional<int> rank, NodePeers& peers, ExitCode code) {
  const Watchdog limit(std::chrono::seconds(5), [code] { end_process(static_cast<int>(code)); });
  if (peers.claim_fault_report() || peers.claim_fault_report(RankActivity::reported))
    say(error_block({ExitCode::fault,
                     rank ? fmt::format("rank {} on {} does not come to its end", *rank, host_name())
                          : "MPI does not come to its end: a rank hangs, or cannot be reached",
                     "the job is over, but the launcher would wait for ever",
                     "look at the nodes of the job; a run directory tells how far it came"}));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  end_process(static_cast<int>(code));
}

}  // namespace

void end_process(int code) { std::_Exit(code); }

void shut_down(std::unique_ptr<World> world, NodePeers& peers, std::chrono::milliseconds patience,
               ExitCode if_late) {
  peers.activity().phase = Phase::finalize;
  std::optional<Watchdog> end_of_mpi(std::in_place, patience,
                                     [&] { end_without(peers.behind(Phase::finalize), peers, if_late); });
  world.reset();
  end_of_mpi.reset();
  const std::optional<int> late = peers.leave(patience);
  if (late) end_without(late, peers, if_late);
}

}  // namespace maniple
