// How far a run is: one line that updates itself on a terminal, a whole line every 30 s in a log (also when
// nothing finished).
#pragma once

#include <runtime/engine.hpp>

#include <chrono>
#include <optional>
#include <string>

namespace maniple {

class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  // columns: the terminal's width; absent: a log.
  ProgressLine(size_t total, std::optional<size_t> columns, Clock::time_point start)
      : total_(total), columns_(columns), start_(start), last_line_(start) {}

  // What to write now; empty: nothing. done: requests that have ended. Called about twice a second; a log's
  // rates are means since its last line.
  std::string update(const Progress& progress, size_t done, Clock::time_point now);
  // Makes room for other text.
  std::string clear() const { return columns_ ? "\r\x1b[K" : ""; }

 private:
  static constexpr std::chrono::seconds between_log_lines{30};

  std::string text(const Progress& progress, size_t done, double prefill_rate, double decode_rate) const;

  size_t total_;
  std::optional<size_t> columns_;
  Clock::time_point start_;
  Clock::time_point last_line_;
  size_t done_at_last_line_ = 0;
  double prefill_rates_ = 0;  // sums since the last line
  double decode_rates_ = 0;
  size_t updates_ = 0;
};

}  // namespace maniple
