// The last resort against a call that never returns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace maniple {

// Calls `on_expiry` once, from its own thread, unless it is fed or destroyed within `limit`.
// on_expiry must not throw, and mostly ends the process. The thread waits for no disk,
// network or other thread. Time in which the whole process was suspended does not count.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds limit, std::function<void()> on_expiry);
  void feed() { ++feeds_; }

 private:
  std::atomic<uint64_t> feeds_ = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
