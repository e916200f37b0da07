// The ceiling of a memory-bound product: all threads read memory far larger than the caches.
#pragma once

#include <kernels/cpu/cpu_device.hpp>
#include <kernels/cpu/thread_pool.hpp>
#include <kernels/tensor/tensor.hpp>

#include <atomic>
#include <chrono>
#include <cstring>

namespace maniple::bench {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class ReadBandwidth {
 public:
  explicit ReadBandwidth(Device& device) : memory_(device, DType::uint8, {bytes}) {
    std::memset(memory_.view().data, 1, bytes);
  }

  // Bytes per second of one pass.
  double measure(ThreadPool& pool) {
    const auto* words = reinterpret_cast<const uint64_t*>(memory_.view().data);
    std::atomic<uint64_t> total{0};
    const auto start = Clock::now();
    pool.parallel_ranges(bytes / block_bytes, 1, [&](IndexRange blocks) {
      uint64_t sum = 0;
      for (int64_t b = blocks.begin; b < blocks.end; ++b) sum += sum_block(words + b * words_in_block);
      total += sum;
    });
    const double seconds = seconds_since(start);
    require(total == bytes / 8 * 0x0101010101010101u, "every byte was read once");
    return bytes / seconds;
  }

 private:
  static constexpr int64_t bytes = int64_t{1} << 30, block_bytes = 4096, words_in_block = block_bytes / 8;

  static uint64_t sum_block(const uint64_t* words) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < words_in_block; i += 8) {
      __builtin_prefetch(words + i + 4 * words_in_block, 0, 2);
      for (int64_t j = i; j < i + 8; ++j) sum += words[j];
    }
    return sum;
  }

  Tensor memory_;
};

}  // namespace maniple::bench
