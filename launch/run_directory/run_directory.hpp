// The directory of a resumable run; only this folder knows its format (README.md). The constructor
// takes the run over and reads the journals of earlier jobs. record() keeps results as requests
// end; finish() writes the final files. After a crash at any moment the next job goes on.
#pragma once

#include <launch/run_directory/ledger.hpp>
#include <launch/run_directory/manifest.hpp>
#include <launch/run_directory/run_lock.hpp>
#include <launch/run_directory/run_status.hpp>

namespace maniple {

// Reads the journals of all jobs, or of those before the job in the folder `until`, into the ledger.
// Returns the number of torn or damaged bytes at their ends; the requests recorded there run again.
uint64_t replay_journals(const std::filesystem::path& directory, Ledger& ledger,
                         const std::filesystem::path& until = {}, const DiskWait& wait = DiskWait(nullptr));

// The final file, there when the run is complete.
inline constexpr const char *results_name = "results.jsonl", *errors_name = "errors.jsonl";

// From the manifest of the directory; fails (input) if it names none.
Shard shard_of(const Manifest& manifest, const std::filesystem::path& directory);

// What the directory is bound to: the manifest of its run. Nothing if no job has begun a request, and all have ended.
// except: the folder of this job, if there is one.
std::optional<Manifest> binding_manifest(const std::filesystem::path& directory,
                                         const std::filesystem::path& except = {});

class RunDirectory {
 public:
  struct Options {
    std::filesystem::path path;
    Manifest manifest;  // with "requests": those of the whole input
    Shard shard;
    JobOwner me;
    LockTiming lock;
    std::chrono::milliseconds sync_interval{5000};
    std::atomic<uint32_t>* disk = nullptr;  // DiskWait's counter, for the constructor and finish()
  };

  // Fails (preflight) while another job is alive, (input) when the directory belongs to another run.
  explicit RunDirectory(const Options& settings) : RunDirectory(settings, DiskWait(settings.disk)) {}

  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& job_folder() const { return lock_.folder(); }
  // What is known of each request. The calls below may run at the same time, for other requests.
  const Ledger& ledger() const { return ledger_; }
  uint64_t dropped_bytes() const { return dropped_bytes_; }  // by replay_journals

  // One thread at a time. tick() hands the records to the operating system at the latest.
  void record(const JournalRecord& record);
  // If the sync interval is over, makes the records durable and writes the
  // progress (fills in its counts). Fails (fault) if another job has taken over.
  void tick(const RunProgress& progress);
  void sync();

  // Call as soon as a stop is requested, because SIGKILL may come before
  // finish(): requests in flight are then no fault. certain: the stop was not
  // a launcher's answer to the death of a rank, so STATUS shows it at once.
  void stopping(bool certain);
  // Call once, at the end. complete: every request has a result or an error; writes the final
  // files. stopped: requests in flight will run again. record: JSON, kept beside the journal.
  void finish(const RunStatus& status, const std::string& record);

 private:
  RunDirectory(const Options& settings, const DiskWait& wait);
  // Fails (fault) if another job has taken over, before or meanwhile.
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
