#include <launch/output/progress.hpp>

#include <fmt/format.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace maniple {
namespace {

constexpr double shortest_stall = 15;  // seconds

std::string stall_text(const Stall& stall, const std::vector<RankLocation>& locations) {
  const int first = stall.ranks.front(), last = stall.ranks.back();
  const std::string& host = locations[static_cast<size_t>(first)].host;
  const std::string& last_host = locations[static_cast<size_t>(last)].host;
  return fmt::format("{:.0f} s no token from replica {} ({} on {})", stall.seconds, stall.replica,
                     first == last ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, last),
                     host == last_host ? host : fmt::format("{} to {}", host, last_host));
}

std::string progress_text(const JobProgress& now) {
  std::string text = fmt::format(
      "{:.1f}% {}/{} | decode {:.0f} tok/s (avg {:.0f}) prefill {:.0f} | running {} waiting {} failed {}",
      100.0 * static_cast<double>(now.done) / static_cast<double>(std::max<uint64_t>(now.requests, 1)),
      now.done, now.requests, now.tokens_per_second, now.average_tokens_per_second,
      now.prefill_tokens_per_second, now.running, now.waiting, now.failed);
  if (now.seconds_left) text += " | ETA " + clock_text(*now.seconds_left);
  if (now.seconds_to_limit) text += " | limit in " + clock_text(*now.seconds_to_limit);
  if (!now.stall.empty()) text += " | STALL " + now.stall;
  return text;
}

}  // namespace

JobProgress job_progress(const Progress& engine, const JobCounts& counts, double seconds,
                         std::optional<double> seconds_to_limit, const std::vector<RankLocation>& locations) {
  JobProgress now;
  now.requests = counts.requests;
  now.done = counts.done;
  now.failed = counts.failed;
  now.running = engine.running;
  const uint64_t left = counts.requests - std::min(counts.requests, counts.done);
  now.waiting = left - std::min<uint64_t>(left, engine.running);
  now.prefill_tokens_per_second = engine.prefill_tokens_per_second;
  now.tokens_per_second = engine.decode_tokens_per_second;
  if (seconds > 0) now.average_tokens_per_second = static_cast<double>(engine.completion_tokens) / seconds;
  if (counts.done > counts.done_before)
    now.seconds_left =
        static_cast<double>(left) * seconds / static_cast<double>(counts.done - counts.done_before);
  now.seconds_to_limit = seconds_to_limit;
  if (engine.stall && engine.stall->seconds >= shortest_stall)
    now.stall = stall_text(*engine.stall, locations);
  return now;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
  return fmt::format("{:02}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string ProgressLine::update(JobProgress progress, Clock::time_point now) {
  prefill_rates_ += progress.prefill_tokens_per_second;
  decode_rates_ += progress.tokens_per_second;
  ++updates_;
  if (!columns_ && is_due(now)) {
    const auto count = static_cast<double>(std::exchange(updates_, 0));
    progress.prefill_tokens_per_second = std::exchange(prefill_rates_, 0) / count;
    progress.tokens_per_second = std::exchange(decode_rates_, 0) / count;
  }
  return show(progress_text(progress), now);
}

std::string ProgressLine::show(std::string_view text, Clock::time_point now) {
  if (columns_) return fmt::format("\r{:.{}}\x1b[K", text, *columns_ - 1);
  if (!is_due(now)) return {};
  last_line_ = now;
  return fmt::format("[{}] {}\n", clock_text(std::chrono::duration<double>(now - start_).count()), text);
}

std::optional<size_t> terminal_columns() {
  struct winsize size {};
  if (::isatty(STDERR_FILENO) == 0) return std::nullopt;
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace maniple
