// What a rank is doing: written by its worker, read by supervision, also from other processes of its node.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace maniple {

// finalize: in MPI_Finalize, which waits for all ranks. gone: it said goodbye.
enum class Phase : uint8_t { start, load, idle, step, end, finalize, gone };
const char* name_of(Phase phase);

// A copy of a RankActivity at one moment, sent between ranks as plain bytes.
struct Heartbeat {
  static constexpr size_t most_requests = 8;

  uint64_t step = 0;
  uint32_t layer = 0;
  Phase phase = Phase::start;
  bool waits = false;                              // for other ranks of its tensor group
  uint32_t running = 0;                            // requests in the step; the first of them,
  std::array<uint64_t, most_requests> first = {};  // by their index in the input

  std::vector<uint64_t> requests() const;  // some of those in flight; none outside of steps
  bool operator==(const Heartbeat&) const = default;
};
static_assert(std::is_trivially_copyable_v<Heartbeat>);

struct RankActivity {
  std::atomic<Phase> phase = Phase::start;
  std::atomic<uint64_t> step = 0;
  std::atomic<uint32_t> layer = 0;
  std::atomic<bool> waits = false;
  std::atomic<uint32_t> running = 0;
  std::array<std::atomic<uint64_t>, Heartbeat::most_requests> first = {};
  // Odd while a thread waits for the disk. Grows at each begin and end of a wait, and with what is done.
  std::atomic<uint32_t> disk = 0;
  // Turns of rank 0's loop that reads requests and plans steps; 0 while it is not running.
  std::atomic<uint64_t> turns = 0;
  // On a node's lowest rank: which rank of the node reports a fault.
  static constexpr int nobody = -1, reported = -2;
  std::atomic<int> fault_reporter = nobody;

  Heartbeat heartbeat() const;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared by processes");

}  // namespace maniple
