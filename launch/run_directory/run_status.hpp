// The state of a run, for people and scripts on any machine: the files STATUS and progress.json.
#pragma once

#include <kernels/support/check.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace maniple {

enum class RunState : uint8_t { running, complete, stopped, fault };
std::string_view name_of(RunState state);

// "stopped 75": the state and the exit code of the last job; 75 while one is running.
struct RunStatus {
  RunState state = RunState::running;
  int exit_code = static_cast<int>(ExitCode::stopped);
};
// Nothing if there is no run, or its file cannot be understood.
std::optional<RunStatus> read_status(const std::filesystem::path& directory);
inline constexpr const char* status_name = "STATUS";
// In a job's folder, until it ends by itself: the STATUS that SIGTERM puts in place.
inline constexpr const char* stopped_marker_name = "stopped";
std::string status_text(const RunStatus& status);
void write_status(const std::filesystem::path& directory, const RunStatus& status);

struct RunProgress {
  uint64_t requests = 0;
  uint64_t done = 0;  // the failed ones among them
  uint64_t failed = 0;
  uint64_t running = 0;
  uint64_t waiting = 0;
  double tokens_per_second = 0;  // completion tokens
  double average_tokens_per_second = 0;
  std::optional<double> seconds_left;      // at this rate
  std::optional<double> seconds_to_limit;  // of the job's time
  std::string stall;                       // which ranks are silent
  int64_t updated = 0;                     // unix time
};
std::optional<RunProgress> read_progress(const std::filesystem::path& directory);
void write_progress(const std::filesystem::path& directory, const RunProgress& progress);

// How evenly the tokens of the last job that ended by itself fell on the experts of its model, as the record has it.
inline constexpr const char* experts_name = "experts.json";
void write_experts(const std::filesystem::path& directory, const std::string& experts);

}  // namespace maniple
