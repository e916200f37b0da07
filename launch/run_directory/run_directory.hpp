// The directory of a resumable run: the one owner of its format (README.md). Constructing it takes the run
// over and learns what earlier jobs have done; then results are recorded as requests end; finish() writes the
// final files. A crash at any moment leaves a directory from which the next job goes on.
#pragma once

#include <launch/run_directory/ledger.hpp>
#include <launch/run_directory/manifest.hpp>
#include <launch/run_directory/run_lock.hpp>
#include <launch/run_directory/run_status.hpp>

namespace maniple {

// Lets the ledger take the journals of all jobs, or of those before the job in the folder `until`. Returns
// how many bytes at their ends were torn or damaged: what they told of happens again.
uint64_t replay_journals(const std::filesystem::path& directory, Ledger& ledger,
                         const std::filesystem::path& until = {}, const DiskWait& wait = DiskWait(nullptr));

// The final file, there when the run is complete.
inline constexpr const char* results_name = "results.jsonl";

// As the manifest of the directory has it; fails (input) where it has none.
Shard shard_of(const Manifest& manifest, const std::filesystem::path& directory);

class RunDirectory {
 public:
  struct Options {
    std::filesystem::path path;
    Manifest manifest;  // with "requests": those of the whole input
    Shard shard;
    JobOwner me;
    LockTiming lock;
    std::chrono::milliseconds sync_interval{5000};
    std::atomic<uint32_t>* disk = nullptr;  // told by the constructor and finish(), as DiskWait has it
  };

  // Fails (preflight) while another job is alive, (input) when the directory belongs to another run.
  explicit RunDirectory(const Options& settings) : RunDirectory(settings, DiskWait(settings.disk)) {}

  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& job_folder() const { return lock_.folder(); }
  // What is known of each request. Safe beside the calls below for requests that those do not concern.
  const Ledger& ledger() const { return ledger_; }
  uint64_t dropped_bytes() const { return dropped_bytes_; }  // by replay_journals

  // One thread at a time. Records are handed to the operating system by tick() at the latest.
  void record(const JournalRecord& record);
  // Makes what was recorded durable if the sync interval is over, with the progress (its counts are filled
  // in). Fails (fault) when another job has taken over.
  void tick(const RunProgress& progress);
  void sync();

  // As soon as a stop is asked for, as who asks may not wait for finish(): what is in flight is no fault.
  // certain: it was not the answer to the death of another rank, and STATUS may say so already.
  void stopping(bool certain);
  // Once, at the end. complete: every request has a result or an error; writes the final files. stopped: what
  // is in flight will run again. record: JSON, kept beside the journal.
  void finish(const RunStatus& status, const std::string& record);

 private:
  RunDirectory(const Options& settings, const DiskWait& wait);
  // Fails (fault) when another job has taken over, before or meanwhile.
  void as_owner(const std::function<void()>& write);
  void write_final_files(const DiskWait& wait);
  RunProgress counted(RunProgress progress) const;

  std::filesystem::path path_;
  std::chrono::milliseconds sync_interval_;
  std::atomic<uint32_t>* disk_;
  RunLock lock_;
  Ledger ledger_;
  uint64_t dropped_bytes_ = 0;
  JournalWriter journal_;
  std::chrono::steady_clock::time_point last_sync_;
};

}  // namespace maniple
