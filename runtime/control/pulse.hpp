// Where a rank is: written by its worker, read by health threads, also of other processes on its node.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace maniple {

// finalize: MPI, which waits for all ranks. gone: it said goodbye.
enum class Phase : uint8_t { start, load, idle, step, end, finalize, gone };
const char* name_of(Phase phase);

// Plain bytes, which cross between ranks.
struct Whereabouts {
  static constexpr size_t most_requests = 8;

  uint64_t step = 0;
  uint32_t layer = 0;
  Phase phase = Phase::start;
  bool waits = false;                              // for others of its tensor group
  uint32_t running = 0;                            // requests in the step; the first of them,
  std::array<uint64_t, most_requests> first = {};  // by their places in the input

  std::vector<uint64_t> requests() const;  // some of those in flight; none outside of steps
  bool operator==(const Whereabouts&) const = default;
};
static_assert(std::is_trivially_copyable_v<Whereabouts>);

struct Pulse {
  std::atomic<Phase> phase = Phase::start;
  std::atomic<uint64_t> step = 0;
  std::atomic<uint32_t> layer = 0;
  std::atomic<bool> waits = false;
  std::atomic<uint32_t> running = 0;
  std::array<std::atomic<uint64_t>, Whereabouts::most_requests> first = {};
  // Odd while something waits for the disk; grows with each beginning and end, and with what is done.
  std::atomic<uint32_t> disk = 0;
  // Of rank 0's loop that reads requests and plans steps; 0 while it serves none.
  std::atomic<uint64_t> turns = 0;
  // In the pulse of a node's lowest rank: who speaks of a fault for all its ranks.
  static constexpr int nobody = -1, has_spoken = -2;
  std::atomic<int> speaker = nobody;

  Whereabouts where() const;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared by processes");

}  // namespace maniple
