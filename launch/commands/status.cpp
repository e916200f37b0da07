#include <launch/commands/commands.hpp>
#include <launch/run_directory/run_lock.hpp>
#include <launch/run_directory/run_status.hpp>

#include <chrono>
#include <cstdio>
#include <thread>

namespace maniple {

namespace {

struct Standing {
  RunStatus status;
  std::string text;
};

int64_t seconds_since(int64_t unix_milliseconds) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count() - unix_milliseconds / 1000;
}

std::string counts_text(const RunProgress& progress, bool running) {
  std::string text =
      fmt::format("{} of {} requests done, {} failed", progress.done, progress.requests, progress.failed);
  if (!running || progress.requests_per_second <= 0) return text;
  const auto left = static_cast<int64_t>(static_cast<double>(progress.requests - progress.done) /
                                         progress.requests_per_second);
  return text + fmt::format("; {:.0f} tok/s, {} running, about {:02}:{:02}:{:02} left",
                            progress.tokens_per_second, progress.running, left / 3600, left / 60 % 60,
                            left % 60);
}

// Says "running" for as long as the job is heard of. Clocks of different machines are compared, so that takes
// longer than a takeover.
std::string check_alive(const JobOwner& owner, RunStatus& status) {
  constexpr int64_t longest_silence = 60;
  const int64_t silence = seconds_since(owner.heartbeat);
  if (is_gone(owner) || silence > longest_silence)
    status = {RunState::fault, static_cast<int>(ExitCode::fault)};
  return fmt::format("; {}, heard of {} s ago", owner.description(), silence);
}

Standing standing_of(const std::filesystem::path& directory) {
  std::optional<RunStatus> status = read_status(directory);
  const std::optional<RunProgress> progress = read_progress(directory);
  if (!status || !progress)
    fail(ExitCode::input, "{} is no run directory, or its first job has not begun; see generate --run-dir",
         directory.string());
  std::string job;
  if (const auto folders = job_folders(directory); status->state == RunState::running && !folders.empty())
    if (const std::optional<JobOwner> owner = running_owner(folders.back()))
      job = check_alive(*owner, *status);
  return {*status, fmt::format("{}: {}, {}{}\n", directory.string(), name_of(status->state),
                               counts_text(*progress, status->state == RunState::running), job)};
}

}  // namespace

ExitCode run_status(const StatusOptions& options) {
  Standing standing = standing_of(options.run_dir);
  while (true) {
    std::fputs(standing.text.c_str(), stdout);
    std::fflush(stdout);
    if (!options.watch || standing.status.state != RunState::running) break;
    std::this_thread::sleep_for(std::chrono::seconds(2));
    standing = standing_of(options.run_dir);
  }
  return options.rc ? static_cast<ExitCode>(standing.status.exit_code) : ExitCode::complete;
}

}  // namespace maniple
