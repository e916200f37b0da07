// The progress of a run: one line that updates itself on a terminal,
// a whole line every 30 s in a log (even if nothing has finished).
#pragma once

#include <launch/run_directory/run_status.hpp>
#include <parallel/world.hpp>
#include <runtime/engine.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// Numbers of requests. Requests of earlier jobs of the run count as done.
struct JobCounts {
  uint64_t requests = 0;
  uint64_t done = 0;
  uint64_t done_before = 0;  // by earlier jobs
  uint64_t failed = 0;       // in this job
};

// `updated` is not set, and `failed` counts this job only.
struct JobProgress : RunProgress {
  double prefill_tokens_per_second = 0;  // since the last report, as tokens_per_second
};

// seconds: since the job began to serve.
JobProgress job_progress(const Progress& engine, const JobCounts& counts, double seconds,
                         std::optional<double> seconds_to_limit, const std::vector<RankLocation>& locations);

// "01:02:03"
std::string clock_text(double seconds);

// Of the terminal behind stderr; absent: stderr is none.
std::optional<size_t> terminal_columns();

class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  // columns: the terminal's width; absent: a log.
  ProgressLine(std::optional<size_t> columns, Clock::time_point start)
      : columns_(columns), start_(start), last_line_(start) {}

  // The text to write now, may be empty. Called about twice
  // a second. A log's rates are means since its last line.
  std::string update(JobProgress progress, Clock::time_point now);
  // The same for any line of text.
  std::string show(std::string_view text, Clock::time_point now);
  // Makes room for other text.
  std::string clear() const { return columns_ ? "\r\x1b[K" : ""; }

 private:
  static constexpr std::chrono::seconds between_log_lines{30};

  bool is_due(Clock::time_point now) const { return now - last_line_ >= between_log_lines; }

  std::optional<size_t> columns_;
  Clock::time_point start_;
  Clock::time_point last_line_;
  double prefill_rates_ = 0;  // sums since the last line
  double decode_rates_ = 0;
  size_t updates_ = 0;
};

}  // namespace maniple
