// The last resort against a call that never returns.
#pragma once

#include <kernels/support/check.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace maniple {

// Ends this process, without a word, unless it is fed or destroyed within `limit`. Its thread calls nothing
// that could wait for a disk, a network or another thread. Time in which the whole process stood still (a
// suspended job) does not count.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::milliseconds limit, ExitCode code = ExitCode::fault);
  void feed() { ++meals_; }

 private:
  std::atomic<uint64_t> meals_ = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
