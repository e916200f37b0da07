// Groups whose bytes pass through host memory.
#pragma once

#include <kernels/ops.hpp>
#include <parallel/communicator.hpp>
#include <parallel/mailbox.hpp>
#include <parallel/transport.hpp>

#include <memory>

namespace maniple {

// How a group inside a node adds tensors in host memory. All ways give the same bits. automatic: as a
// measurement at the start says.
enum class AllReduce : uint8_t { automatic, shared, messages };

// Collective. `how` is for ranks of one node. Where they have no shared memory, or the host cannot reach the
// device's memory, everything goes by messages; then bytes pass through a host buffer in the second case.
std::unique_ptr<Communicator> make_host_communicator(std::unique_ptr<Transport> transport, Ops& ops,
                                                     AllReduce how, Backoff::Spin spin);

}  // namespace maniple
