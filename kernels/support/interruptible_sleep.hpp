// Sleep of a thread that may be told to stop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

namespace maniple {

// Of one thread. Allocates when it is made, and never again.
class InterruptibleSleep {
 public:
  explicit InterruptibleSleep(std::stop_token stop) : stop_(std::move(stop)) {}

  // False at once when a stop is requested; true after all of `time`.
  bool operator()(std::chrono::nanoseconds time) {
    std::unique_lock lock(mutex_);
    return !wake_.wait_for(lock, stop_, time, [this] { return stop_.stop_requested(); });
  }

 private:
  std::stop_token stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
};

}  // namespace maniple
