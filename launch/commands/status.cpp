#include <launch/commands/commands.hpp>
#include <launch/fault_news.hpp>
#include <launch/progress.hpp>
#include <launch/run_directory/run_lock.hpp>
#include <launch/run_directory/run_status.hpp>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>

namespace maniple {
namespace {

constexpr RunStatus fault_status{RunState::fault, static_cast<int>(ExitCode::fault)};

struct Standing {
  RunStatus status;
  std::string text;
};

std::string counts_text(const RunProgress& progress, bool running) {
  std::string text =
      fmt::format("{} of {} requests done, {} failed", progress.done, progress.requests, progress.failed);
  if (!running) return text;
  const auto age = static_cast<double>(std::time(nullptr) - progress.updated);
  text += fmt::format("; {:.0f} tok/s (avg {:.0f}), {} running", progress.tokens_per_second,
                      progress.average_tokens_per_second, progress.running);
  if (progress.seconds_left) text += ", ETA " + clock_text(*progress.seconds_left - age);
  if (progress.seconds_to_limit) text += ", limit in " + clock_text(*progress.seconds_to_limit - age);
  if (!progress.stall.empty()) text += ", STALL " + progress.stall;
  return text;
}

// Says "running" for as long as the job is heard of. Clocks of different machines are compared, so that takes
// longer than a takeover.
std::string check_alive(const JobOwner& owner, RunStatus& status) {
  constexpr int64_t longest_silence = 60;
  const int64_t silence = std::time(nullptr) - owner.heartbeat / 1000;
  const bool gone = is_gone(owner) || silence > longest_silence;
  if (gone) status = fault_status;
  return fmt::format("; {}, heard of {} s ago{}", owner.description(), silence,
                     gone ? ": it ended without a word" : "");
}

// What is known of the last job. One that was killed at its first steps, or refused, leaves the word to the
// one before it.
std::string job_text(const std::vector<std::filesystem::path>& folders, RunStatus& status) {
  if (folders.empty()) return {};
  const bool running = status.state == RunState::running;
  if (const std::optional<std::string> fault = read_fault(folders.back())) {
    if (running) status = fault_status;  // whoever told of it was killed before it wrote STATUS
    return "; " + *fault;
  }
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
    if (const std::optional<JobOwner> owner = running_owner(*folder); running && owner)
      return check_alive(*owner, status);
  return {};
}

Standing standing_of(const std::filesystem::path& directory) {
  std::optional<RunStatus> status = read_status(directory);
  const std::optional<RunProgress> progress = read_progress(directory);
  if (!status || !progress)
    fail(ExitCode::input, "{} is no run directory, or its first job has not begun; see generate --run-dir",
         directory.string());
  const RunState told = status->state;
  const std::string job = job_text(job_folders(directory), *status);
  // A job may have ended well since STATUS was read, and left only older ones to judge.
  if (status->state != told)
    if (const auto now = read_status(directory); !now || now->state != told) return standing_of(directory);
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
