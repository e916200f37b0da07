// The end of a process: in an ordered way, all ranks together, or at once after a fault.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/supervision/node_peers.hpp>
#include <parallel/world.hpp>

#include <chrono>
#include <memory>

namespace maniple {

// The one way out of a fault. Cleans up nothing, because
// that could wait for a disk, a network or another thread.
[[noreturn]] void end_process(int code);

// Collective. Ends MPI, which waits for all ranks. Then waits for the peers of the
// node, because the launcher would wait for ever for a stopped process. If a rank takes
// longer than `patience`, the message names it, and the process ends with if_late.
void shut_down(std::unique_ptr<World> world, NodePeers& peers, std::chrono::milliseconds patience,
               ExitCode if_late);

}  // namespace maniple
