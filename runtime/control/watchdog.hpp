// The last resort against a call that never returns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace maniple {

// Calls `starved`, once, in its own thread, unless it is fed or destroyed within `limit`. What is called must
// not throw, and mostly ends the process. The thread itself waits for no disk, network or other thread. Time
// in which the whole process stood still (a suspended job) does not count.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds limit, std::function<void()> starved);
  void feed() { ++meals_; }

 private:
  std::atomic<uint64_t> meals_ = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
