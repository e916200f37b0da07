#include <kernels/support/check.hpp>
#include <kernels/support/interruptible_sleep.hpp>
#include <kernels/support/process_fields.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/run_directory/run_lock.hpp>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <system_error>

namespace maniple {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(JobOwner, host, pid, job, machine, start, heartbeat)

namespace {

constexpr const char* owner_name = "owner.json";

fs::path folder_of(const fs::path& directory, uint64_t number) {
  return directory / "jobs" / std::to_string(number);
}

uint64_t number_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  uint64_t number = 0;
  const char* end = name.data() + name.size();
  return std::from_chars(name.data(), end, number).ptr == end ? number : 0;
}

uint64_t start_of(const std::vector<std::string>& fields) {
  constexpr size_t start_time = 19;
  return fields.size() > start_time ? std::stoull(fields[start_time]) : 0;
}

std::string machine_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  return boot + ' ' + fs::read_symlink("/proc/self/ns/pid", ignored).string();
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

int64_t unix_milliseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

[[noreturn]] void refuse_second(const fs::path& directory, const fs::path& folder) {
  const std::optional<JobOwner> owner = running_owner(folder);
  throw Error(ExitCode::preflight,
              fmt::format("{} is in use by {}", directory.string(),
                          owner ? owner->description() : "a job that has just started"),
              "two jobs at once would compute the same requests twice",
              "wait for it, end it, or start this one behind it: sbatch --dependency=afterany:JOB");
}

bool has_ended(const fs::path& folder) {
  const std::optional<JobOwner> owner = running_owner(folder);
  return is_there(folder / job_record_name) || (owner && is_gone(*owner));
}

// Returns when the job counts as gone.
void wait_for_silence(const fs::path& directory, const fs::path& folder, const LockTiming& timing,
                      const DiskWait& wait) {
  if (has_ended(folder)) return;
  const std::optional<std::string> first = read_optional_file(folder / owner_name);
  fmt::print(
      stderr,
      "maniple: warning: an earlier job in {} has not ended; waiting up to {:.0f} s for a sign of life\n",
      directory.string(), std::chrono::duration<double>(timing.silence).count());
  const Clock::time_point deadline = Clock::now() + timing.silence;
  while (Clock::now() < deadline && !has_ended(folder)) {
    if (read_optional_file(folder / owner_name) != first) refuse_second(directory, folder);
    wait.moved();
    std::this_thread::sleep_for(timing.beat / 10);
  }
}

}  // namespace

std::string JobOwner::description() const {
  return fmt::format("{}process {} on {}", job.empty() ? "" : fmt::format("job {}, ", job), pid, host);
}

JobOwner this_process(std::string host, std::string job) {
  return {
      std::move(host),    ::getpid(), std::move(job), machine_name(), start_of(process_fields(::getpid())),
      unix_milliseconds()};
}

// Fails on any error: with half a list the work of earlier jobs would be done again.
std::vector<fs::path> job_folders(const fs::path& directory) {
  const fs::path jobs = directory / "jobs";
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(jobs, error), end; !error && entry != end; entry.increment(error))
    if (number_of(entry->path()) > 0) folders.push_back(entry->path());
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ExitCode::fault, fmt::format("cannot list {}: {}", jobs.string(), error.message()),
                "it says what earlier jobs have done",
                "look at that file system, then run the same command again");
  std::ranges::sort(folders, {}, number_of);
  return folders;
}

std::optional<JobOwner> owner_of(const fs::path& job_folder) try {
  const std::optional<std::string> text = read_optional_file(job_folder / owner_name);
  return text ? std::optional(json::parse(*text).get<JobOwner>()) : std::nullopt;
} catch (const json::exception&) {
  return std::nullopt;
}

std::optional<JobOwner> running_owner(const fs::path& job_folder) {
  return is_there(job_folder / job_record_name) ? std::nullopt : owner_of(job_folder);
}

// /proc may hide processes of other users (hidepid); kill() finds them all the same.
bool is_gone(const JobOwner& owner) {
  if (owner.machine != machine_name()) return false;
  const std::vector<std::string> fields = process_fields(owner.pid);
  if (fields.empty()) return ::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH;
  return fields[0] == "Z" || fields[0] == "X" || start_of(fields) != owner.start;
}

// Processes of other namespaces have other numbers there, but the same time of start.
bool looks_gone(const JobOwner& owner) {
  constexpr std::string_view initial_namespace = "pid:[4026531836]";
  const std::string here = machine_name();
  if (owner.machine == here) return is_gone(owner);
  const std::string boot = here.substr(0, here.find(' ') + 1);
  if (!owner.machine.starts_with(boot) || !here.ends_with(initial_namespace) || process_fields(1).empty())
    return false;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::vector<std::string> fields = process_fields(static_cast<int64_t>(number_of(entry.path())));
    if (!fields.empty() && fields[0] != "Z" && fields[0] != "X" && start_of(fields) == owner.start)
      return false;
  }
  return true;
}

RunLock::RunLock(fs::path directory, JobOwner me, const LockTiming& timing, const DiskWait& wait)
    : directory_(std::move(directory)), me_(std::move(me)), timing_(timing) {
  while (folder_.empty()) {
    const std::vector<fs::path> folders = job_folders(directory_);
    if (!folders.empty()) wait_for_silence(directory_, folders.back(), timing_, wait);
    number_ = folders.empty() ? 1 : number_of(folders.back()) + 1;
    const fs::path mine = folder_of(directory_, number_);
    if (::mkdir(mine.c_str(), 0777) == 0)
      folder_ = mine;
    else if (errno != EEXIST)
      fail(ExitCode::fault, "cannot create {}: {}", mine.string(), std::generic_category().message(errno));
  }
  replace_file(folder_ / owner_name, json(me_).dump());
  sync_directory(folder_.parent_path());
  thread_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
}

// The text keeps its length, so a reader sees an old or a new one. On network file
// systems closing the file makes it visible. If a write fails, the others miss one beat.
void RunLock::beat(const std::stop_token& stop) {
  InterruptibleSleep sleep(stop);
  while (sleep(timing_.beat)) {
    me_.heartbeat = unix_milliseconds();
    const std::string text = json(me_).dump();
    const FileDescriptor file(::open((folder_ / owner_name).c_str(), O_WRONLY | O_CLOEXEC));
    std::ignore = ::pwrite(file.get(), text.data(), text.size(), 0);
  }
}

bool RunLock::is_held() const { return !is_there(folder_of(directory_, number_ + 1)); }

void RunLock::check_held() const {
  if (is_held()) return;
  throw Error(ExitCode::fault, fmt::format("another job has taken over {}", directory_.string()),
              "this one was not heard of for so long that it counted as gone",
              "let the other one finish; nothing is lost");
}

}  // namespace maniple
