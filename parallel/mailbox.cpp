#include <parallel/mailbox.hpp>

#include <algorithm>
#include <thread>

namespace maniple {

namespace {

using namespace std::chrono_literals;
constexpr auto spin_time = 50us;
constexpr auto yield_time = 1ms;
constexpr auto longest_sleep = 1ms;

}  // namespace

void Backoff::pause() {
  const auto now = std::chrono::steady_clock::now();
  if (!waiting_) {
    waiting_ = true;
    start_ = now;
  }
  const auto waited = now - start_;
  if (waited < spin_time && spins_) return;
  if (waited < yield_time) return std::this_thread::yield();
  // In proportion to the wait so far: a sleep then adds little to it.
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(waited / 16, longest_sleep));
}

}  // namespace maniple
