// Ranks as threads of one process, for tests of code that talks to other
// ranks. Clean under the thread sanitizer. A rank that waits too long
// (mismatched collectives) or whose peer failed throws instead of hanging.
#pragma once

#include <parallel/transport.hpp>
#include <parallel/world.hpp>

#include <chrono>
#include <functional>

namespace maniple {

// Makes the groups of a rank in another way, and may take the transport; null: the default.
using MakeGroup = std::function<std::unique_ptr<Communicator>(
    int world_rank, std::unique_ptr<Transport>& members, std::span<const int> ranks, Ops& ops)>;

// Runs f(world) on `ranks` threads. Rethrows the first failure after all have ended; no wait of a rank lasts
// longer than `deadline`. Prefer EXPECT_ to ASSERT_ in f: a rank that returns early lets the others wait for
// it.
void run_ranks(int ranks, const std::function<void(World&)>& f,
               std::chrono::milliseconds deadline = std::chrono::seconds(60),
               const MakeGroup& make_group = nullptr);
// The same with a bare transport.
void run_transports(int ranks, const std::function<void(Transport&)>& f);

}  // namespace maniple
