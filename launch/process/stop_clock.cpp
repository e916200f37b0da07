#include <kernels/support/interruptible_sleep.hpp>
#include <launch/process/command_output.hpp>
#include <launch/process/stop_clock.hpp>

#include <algorithm>
#include <ctime>

namespace maniple {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = WallClock::time_point;

constexpr seconds default_stop_before{180};
constexpr std::chrono::days farthest_end{300};

}  // namespace

std::optional<TimePoint> parse_squeue_time(std::string_view text, TimePoint now) {
  const std::string line(text.substr(0, text.find('\n')));
  std::tm local{};
  const char* end = ::strptime(line.c_str(), "%Y-%m-%dT%H:%M:%S", &local);
  if (!end || *end != '\0') return std::nullopt;
  local.tm_isdst = -1;  // squeue does not say
  const TimePoint job_end = WallClock::from_time_t(std::mktime(&local));
  return job_end < now + farthest_end ? std::optional(job_end) : std::nullopt;
}

std::optional<TimePoint> asked_end(const TimeLimit& limit, milliseconds patience,
                                   const std::stop_token& stop) {
  if (limit.slurm_job.empty()) return std::nullopt;
  const std::vector<std::string> squeue{
      "env", "SLURM_TIME_FORMAT=standard", "squeue", "-h", "-j", limit.slurm_job, "-o", "%e"};
  return parse_squeue_time(output_of(squeue, patience, stop).value_or(""), WallClock::now());
}

std::optional<TimePoint> presumed_end(const TimeLimit& limit) {
  if (limit.slurm_end) return limit.slurm_end;
  if (limit.walltime) return limit.start + *limit.walltime;
  return std::nullopt;
}

TimePoint time_to_stop(const TimeLimit& limit, TimePoint end) {
  if (limit.stop_before) return end - *limit.stop_before;
  return end - std::min<WallClock::duration>(default_stop_before, (end - limit.start) / 2);
}

StopClock::StopClock(const TimeLimit& limit, Stop stop, milliseconds interval)
    : limit_(limit),
      stop_(std::move(stop)),
      interval_(interval),
      end_(presumed_end(limit).value_or(TimePoint::max())),
      thread_([this](const std::stop_token& dismissed) { watch(dismissed); }) {}

std::optional<TimePoint> StopClock::end() const {
  const TimePoint known = end_;
  return known == TimePoint::max() ? std::nullopt : std::optional(known);
}

void StopClock::watch(const std::stop_token& dismissed) {
  InterruptibleSleep sleep(dismissed);
  TimePoint stop_at;
  do {
    // Without an answer the last one stays.
    if (const auto answer = asked_end(limit_, seconds(10), dismissed)) end_ = *answer;
    stop_at = end() ? time_to_stop(limit_, *end()) : TimePoint::max();
    if (!sleep(std::min<WallClock::duration>(interval_, stop_at - WallClock::now()))) return;
  } while (WallClock::now() < stop_at);
  stop_(*end());
}

}  // namespace maniple
