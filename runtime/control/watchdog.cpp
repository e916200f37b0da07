#include <runtime/control/watchdog.hpp>

#include <condition_variable>
#include <mutex>
#include <utility>

namespace maniple {

// It counts ticks of its own, as a process that stands still ticks only once.
Watchdog::Watchdog(std::chrono::milliseconds limit, std::function<void()> starved)
    : thread_([this, limit, starved = std::move(starved)](const std::stop_token& dismissed) {
        constexpr int ticks = 16;
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        uint64_t eaten = meals_;
        for (int hungry = 0; hungry < ticks; ++hungry) {
          if (wake.wait_for(lock, dismissed, limit / ticks, [&] { return dismissed.stop_requested(); }))
            return;
          if (meals_ == eaten) continue;
          eaten = meals_;
          hungry = 0;
        }
        starved();
      }) {}

}  // namespace maniple
