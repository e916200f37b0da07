// What a rank is doing: its worker writes it; supervision reads it, also in other processes of the node.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace maniple {

// finalize: in MPI_Finalize, which waits for all ranks. gone: about to exit in the regular way.
enum class Phase : uint8_t { start, load, idle, step, end, finalize, gone };
constexpr const char* name_of(Phase phase) {
  constexpr std::array names{"start", "load", "idle", "step", "end", "finalize", "gone"};
  return names[static_cast<size_t>(phase)];
}

// A copy of a RankActivity at one moment, sent between ranks as plain bytes.
struct Heartbeat {
  static constexpr size_t max_requests = 8;

  uint64_t step = 0;
  uint32_t layer = 0;  // or in_graph and more (runtime/scheduling/step_runner.hpp)
  Phase phase = Phase::start;
  bool waits = false;                             // for other ranks of its tensor group
  uint32_t running = 0;                           // number of requests in the step
  std::array<uint64_t, max_requests> first = {};  // the first of them, by their index in the input

  // The valid part of `first`; empty outside of steps.
  std::vector<uint64_t> requests() const {
    const size_t shown = phase == Phase::step ? std::min<size_t>(running, max_requests) : 0;
    return {first.begin(), first.begin() + static_cast<std::ptrdiff_t>(shown)};
  }
  bool operator==(const Heartbeat&) const = default;
};
static_assert(std::is_trivially_copyable_v<Heartbeat>);

// What a rank has done since it began to serve, in sums; times in microseconds.
struct RankTotals {
  uint64_t steps = 0;
  uint64_t prefill = 0;  // a mixed step counts by its share of prompt tokens
  uint64_t decode = 0;
  uint64_t communication = 0;  // within both: in collectives
  uint64_t idle = 0;           // waiting for plans
};
static_assert(std::is_trivially_copyable_v<RankTotals>);

struct RankActivity {
  std::atomic<Phase> phase = Phase::start;
  std::atomic<uint64_t> step = 0;
  std::atomic<uint32_t> layer = 0;
  std::atomic<bool> waits = false;
  std::atomic<uint32_t> running = 0;
  std::array<std::atomic<uint64_t>, Heartbeat::max_requests> first = {};
  // RankTotals'.
  std::atomic<uint64_t> steps = 0, prefill = 0, decode = 0, communication = 0, idle = 0;
  // Odd while a thread waits for the disk. Grows when a wait begins or ends, and with progress.
  std::atomic<uint32_t> disk = 0;
  // Turns of rank 0's loop that reads requests and plans steps; 0 while it is not running.
  std::atomic<uint64_t> turns = 0;
  // Used in the entry of a node's lowest rank: the rank of the node that reports a fault.
  static constexpr int nobody = -1, reported = -2;
  std::atomic<int> fault_reporter = nobody;

  Heartbeat heartbeat() const {
    Heartbeat now{step, layer, phase, waits, running, {}};
    std::copy(first.begin(), first.end(), now.first.begin());
    return now;
  }
  RankTotals totals() const { return {steps, prefill, decode, communication, idle}; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared by processes");

}  // namespace maniple
