// One job at a time works in a run directory. Jobs are numbered: job n owns the directory as
// long as there is no job n + 1. A job takes the ownership by making the folder jobs/n: mkdir
// succeeds for one process only, on every file system. The folder is never removed, so no
// number is used twice. A job that was cut off and comes back finds a later job, and stops.
#pragma once

#include <launch/run_directory/disk_wait.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace maniple {

// Who runs a job.
struct JobOwner {
  std::string host;
  int64_t pid = 0;
  std::string job;                  // of the batch system; may be empty
  std::string machine;              // distinguishes processes of the same number: boot and process namespace
  uint64_t start = 0;               // of the process, in ticks since boot
  int64_t heartbeat = 0;            // unix time in ms
  std::string description() const;  // "job 812345 on nid0041, process 123"
};

// This process.
JobOwner this_process(std::string host, std::string job);

struct LockTiming {
  std::chrono::milliseconds beat{2000};
  std::chrono::milliseconds silence{30'000};  // of the other's heartbeat, before it counts as gone
};

// The folders of all jobs, in order; none if there is no run. Fails (fault) if they cannot be listed.
std::vector<std::filesystem::path> job_folders(const std::filesystem::path& directory);
// In a job's folder: written last by a job that ends by itself.
inline constexpr const char* job_record_name = "record.json";
// In a job's folder: its fault, written by the first rank that noticed it.
inline constexpr const char* fault_record_name = "fault.json";
// In a job's folder: the folder with a log of each rank.
inline constexpr const char* logs_name = "logs";

// The owner recorded in a job's folder.
std::optional<JobOwner> owner_of(const std::filesystem::path& job_folder);
// The owner of a job that has not ended by itself; nothing if it has, or if no owner is recorded.
std::optional<JobOwner> running_owner(const std::filesystem::path& job_folder);
// True only if that is certain, for a job of this machine.
bool is_gone(const JobOwner& owner);
// For reports: also of a job in a container of this machine, where all processes can be seen from here. A container with
// clocks of its own may look like one that is gone.
bool looks_gone(const JobOwner& owner);

class RunLock {
 public:
  // Fails (preflight) while another job is alive. Waits for a sign of life if that is not certain.
  RunLock(std::filesystem::path directory, JobOwner me, const LockTiming& timing,
          const DiskWait& wait = DiskWait(nullptr));

  const std::filesystem::path& folder() const { return folder_; }  // of this job
  bool is_held() const;
  void check_held() const;  // fails (fault) otherwise

 private:
  void beat(const std::stop_token& stop);

  std::filesystem::path directory_;
  std::filesystem::path folder_;
  uint64_t number_ = 0;
  JobOwner me_;
  LockTiming timing_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
