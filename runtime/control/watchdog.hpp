// The last resort against a call that never returns.
#pragma once

#include <kernels/support/check.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace maniple {

// Ends this process unless it is fed or destroyed within `limit`. Its thread calls nothing that could wait
// for a disk, a network or another thread, unless last words are asked for. Time in which the whole process
// stood still (a suspended job) does not count.
class Watchdog {
 public:
  using LastWords = std::function<void()>;  // said before the end; must not throw
  explicit Watchdog(std::chrono::milliseconds limit, ExitCode code = ExitCode::fault, LastWords words = {});
  void feed() { ++meals_; }

 private:
  std::atomic<uint64_t> meals_ = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
