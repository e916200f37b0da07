// Stops a job before its time limit. Rank 0 asks the batch system when the job ends.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace maniple {

// Time of day, as the batch system gives it.
using WallClock = std::chrono::system_clock;

// What is known without asking squeue.
struct TimeLimit {
  std::string slurm_job;                              // as squeue names it; empty: none
  std::optional<WallClock::time_point> slurm_end;     // SLURM_JOB_END_TIME: newer versions set it
  std::optional<std::chrono::milliseconds> walltime;  // --walltime, from `start` on
  std::optional<std::chrono::milliseconds> stop_before;
  WallClock::time_point start = WallClock::now();
};

// What `squeue -o %e` prints, local time: 2026-11-21T13:30:07. Nothing for other text (NONE, N/A), and for an
// end more than 300 days from now: a job without a limit gets one after a year.
std::optional<WallClock::time_point> parse_squeue_time(std::string_view text, WallClock::time_point now);

// Asks squeue; nothing without a job, or without an answer in time.
std::optional<WallClock::time_point> asked_end(const TimeLimit& limit, std::chrono::milliseconds patience,
                                               const std::stop_token& stop = {});

// If squeue does not tell: slurm_end, else from walltime.
std::optional<WallClock::time_point> presumed_end(const TimeLimit& limit);

// stop_before the end. By default 180 s before, but at most
// half of the job's time, so that short jobs do some work.
WallClock::time_point time_to_stop(const TimeLimit& limit, WallClock::time_point end);

// Calls `stop` once, from its own thread, with the job's end, when it is time. The thread asks
// squeue (10 s at most) at the start and then every `interval`, because time limits may change.
class StopClock {
 public:
  using Stop = std::function<void(WallClock::time_point end)>;
  StopClock(const TimeLimit& limit, Stop stop, std::chrono::milliseconds interval = std::chrono::minutes(5));

  // The job's end, if known. From any thread.
  std::optional<WallClock::time_point> end() const;

 private:
  void watch(const std::stop_token& dismissed);

  const TimeLimit limit_;
  const Stop stop_;
  const std::chrono::milliseconds interval_;
  std::atomic<WallClock::time_point> end_;  // unknown: max()
  std::jthread thread_;                     // last: it uses the others
};

}  // namespace maniple
