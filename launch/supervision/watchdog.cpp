#include <kernels/support/interruptible_sleep.hpp>
#include <launch/supervision/watchdog.hpp>

#include <utility>

namespace maniple {

// It counts its own ticks: a suspended process ticks only once.
Watchdog::Watchdog(std::chrono::milliseconds limit, std::function<void()> on_expiry)
    : thread_([this, limit, on_expiry = std::move(on_expiry)](const std::stop_token& dismissed) {
        constexpr int ticks = 16;
        InterruptibleSleep sleep(dismissed);
        uint64_t seen = feeds_;
        for (int ticks_missed = 0; ticks_missed < ticks; ++ticks_missed) {
          if (!sleep(limit / ticks)) return;
          if (feeds_ == seen) continue;
          seen = feeds_;
          ticks_missed = 0;
        }
        on_expiry();
      }) {}

}  // namespace maniple
