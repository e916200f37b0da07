#include <launch/progress.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace maniple {

std::string ProgressLine::text(const Progress& progress, size_t done, double prefill_rate,
                               double decode_rate) const {
  return fmt::format(
      "Generating {}/{} | Prefill: {:.0f} tok/s | Decode: {:.0f} tok/s | running {} waiting {}", done, total_,
      prefill_rate, decode_rate, progress.running, total_ - std::min(total_, done + progress.running));
}

std::string ProgressLine::update(const Progress& progress, size_t done, Clock::time_point now) {
  if (columns_)
    return fmt::format(
        "\r{:.{}}\x1b[K",
        text(progress, done, progress.prefill_tokens_per_second, progress.decode_tokens_per_second),
        *columns_ - 1);
  prefill_rates_ += progress.prefill_tokens_per_second;
  decode_rates_ += progress.decode_tokens_per_second;
  ++updates_;
  if (now - last_line_ < between_log_lines) return {};
  const auto count = static_cast<double>(std::exchange(updates_, 0));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
  const size_t finished = done - std::exchange(done_at_last_line_, done);
  last_line_ = now;
  return fmt::format(
      "[{:02}:{:02}:{:02}] {}{}\n", seconds / 3600, seconds / 60 % 60, seconds % 60,
      text(progress, done, std::exchange(prefill_rates_, 0) / count, std::exchange(decode_rates_, 0) / count),
      finished == 0 ? " | none finished since the last line" : "");
}

}  // namespace maniple
