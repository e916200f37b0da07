// The calls of a group's collectives, by operation and size.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace maniple {

enum class CollectiveOp : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send,
  receive
};
inline constexpr std::array collective_op_names = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                   "broadcast",  "send",       "receive"};

struct CollectiveCount {
  uint64_t calls = 0;
  uint64_t bytes = 0;  // of the tensor that a rank passes in, or that broadcast and receive bring
  double seconds = 0;  // with the waits for other ranks
  double longest = 0;
};

struct CollectiveCounts {
  static constexpr size_t num_sizes = 48;  // by size: 2^k bytes and more, less than twice that

  std::array<std::array<CollectiveCount, num_sizes>, collective_op_names.size()> by_op = {};

  void add(CollectiveOp op, size_t bytes, double seconds) {
    const size_t size = std::min<size_t>(static_cast<size_t>(std::bit_width(bytes | 1)) - 1, num_sizes - 1);
    CollectiveCount& count = by_op[static_cast<size_t>(op)][size];
    ++count.calls;
    count.bytes += bytes;
    count.seconds += seconds;
    count.longest = seconds < count.longest ? count.longest : seconds;
  }
  void add(const CollectiveCounts& other) {
    for (size_t op = 0; op < by_op.size(); ++op)
      for (size_t size = 0; size < num_sizes; ++size) {
        CollectiveCount& count = by_op[op][size];
        const CollectiveCount& more = other.by_op[op][size];
        count = {count.calls + more.calls, count.bytes + more.bytes, count.seconds + more.seconds,
                 std::max(count.longest, more.longest)};
      }
  }
  // Adds `times` (which may be negative) as many calls and bytes as `other` has, but no time.
  void add_calls(const CollectiveCounts& other, int64_t times) {
    for (size_t op = 0; op < by_op.size(); ++op)
      for (size_t size = 0; size < num_sizes; ++size) {
        by_op[op][size].calls += other.by_op[op][size].calls * static_cast<uint64_t>(times);
        by_op[op][size].bytes += other.by_op[op][size].bytes * static_cast<uint64_t>(times);
      }
  }
};

}  // namespace maniple
