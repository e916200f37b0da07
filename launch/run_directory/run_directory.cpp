#include <kernels/support/check.hpp>
#include <launch/run_directory/run_directory.hpp>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <iterator>
#include <system_error>

namespace maniple {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* journal_name = "journal";

const fs::path& made(const fs::path& directory) {
  std::error_code error;
  const fs::path jobs = directory / "jobs";
  fs::create_directories(jobs, error);
  if (!error && ::access(jobs.c_str(), W_OK) != 0) error = {errno, std::generic_category()};
  if (error)
    throw Error(ExitCode::input, fmt::format("cannot write into {}: {}", directory.string(), error.message()),
                "nothing was loaded or computed yet", "give --run-dir a place where you may write");
  return directory;
}

bool has_begun(const fs::path& job) {
  return !fs::exists(job / job_record_name) ||
         (fs::exists(job / journal_name) && JournalReader(job / journal_name).next());
}

// Under the lock: two first starts of different runs cannot both write it.
void check_or_write(const Manifest& manifest, const fs::path& directory, const fs::path& job) {
  if (const std::optional<Manifest> there = binding_manifest(directory, job))
    return there->check_same(manifest, directory, {"started"});
  manifest.write(directory);
  sync_directory(fs::absolute(directory).parent_path());
}

}  // namespace

std::optional<Manifest> binding_manifest(const fs::path& directory, const fs::path& except) {
  std::optional<Manifest> manifest = Manifest::read(directory);
  if (!manifest) return std::nullopt;
  const auto binds = [&](const fs::path& job) { return job != except && has_begun(job); };
  return std::ranges::any_of(job_folders(directory), binds) ? manifest : std::nullopt;
}

RunDirectory::RunDirectory(const Options& settings, const DiskWait& wait)
    : path_(settings.path),
      sync_interval_(settings.sync_interval),
      disk_(settings.disk),
      lock_(made(path_), settings.me, settings.lock, wait),
      ledger_(settings.manifest.number("requests"), settings.shard),
      journal_(lock_.folder() / journal_name),
      last_sync_(std::chrono::steady_clock::now()) {
  try {
    as_owner([&] {
      check_or_write(settings.manifest, path_, lock_.folder());
      remove_unfinished_files(path_);
      dropped_bytes_ = replay_journals(path_, ledger_, lock_.folder(), wait);
      ledger_.open(lock_.folder() / journal_name);
      write_progress(path_, counted({}));
      write_status(path_, {});
    });
  } catch (...) {
    try {
      replace_file(lock_.folder() / job_record_name, "{\"state\":\"refused\"}\n");
    } catch (const Error&) {  // the error that refused the start is the one to report
    }
    throw;
  }
}

// Ranks of a node report each other's death. So no record with several logs means that
// the whole job was killed at once. A rank that was alone may have died of a request.
JobEnd end_of(const fs::path& job) {
  const std::optional<std::string> record = read_optional_file(job / fault_record_name);
  std::error_code ignored;
  const auto logs = std::distance(fs::directory_iterator(job / logs_name, ignored), {});
  if (!record) return logs > 1 ? JobEnd::outside : JobEnd::untold;
  const json fault = json::parse(*record, nullptr, false);
  const bool outside = fault.is_object() && (fault.value("phase", json("step")) != "step" ||
                                             fault.value("from_outside", json(false)) == true);
  return outside ? JobEnd::outside : JobEnd::fault;
}

Shard shard_of(const Manifest& manifest, const fs::path& directory) {
  const std::string* text = manifest.find("shard");
  Shard shard;
  const char* end = text ? text->data() + text->size() : nullptr;
  if (!text ||
      std::from_chars(std::from_chars(text->data(), end, shard.index).ptr + 1, end, shard.count).ptr != end)
    fail(ExitCode::input, "{} does not say which shard it holds", directory.string());
  return shard;
}

// After the death of a rank the launcher signals the others,
// so rank 0 may have recorded a stop: end_of() decides.
uint64_t replay_journals(const fs::path& directory, Ledger& ledger, const fs::path& until,
                         const DiskWait& wait) {
  uint64_t dropped = 0;
  for (const fs::path& job : job_folders(directory)) {
    if (job == until) break;
    if (fs::exists(job / journal_name)) dropped += ledger.replay(job / journal_name, end_of(job), wait);
  }
  return dropped;
}

// Checks first: a record that the ledger refuses must not reach the disk.
void RunDirectory::record(const JournalRecord& record) {
  require(ledger_.concerns(record), "a run records its own requests only");
  ledger_.take(record, journal_.append(record));
}

void RunDirectory::tick(const RunProgress& progress) {
  journal_.flush();
  if (std::chrono::steady_clock::now() - last_sync_ < sync_interval_) return;
  sync();
  as_owner([&] { write_progress(path_, counted(progress)); });
}

void RunDirectory::as_owner(const std::function<void()>& write) {
  lock_.check_held();
  try {
    write();
  } catch (const Error&) {  // perhaps because the next owner has removed our unfinished files
    lock_.check_held();
    throw;
  }
}

void RunDirectory::sync() {
  lock_.check_held();
  journal_.sync();
  last_sync_ = std::chrono::steady_clock::now();
}

void RunDirectory::stopping(bool certain) {
  record({JournalRecord::Kind::stopped});
  sync();
  if (certain && !fs::exists(lock_.folder() / fault_record_name))
    as_owner([&] { write_status(path_, {RunState::stopped}); });
}

void RunDirectory::finish(const RunStatus& status, const std::string& record) {
  const DiskWait wait(disk_);
  // After a fault, which may be the disk's, tries every write and ignores errors.
  const auto attempt = [&](const auto& write) {
    try {
      write();
      wait.moved();
    } catch (const Error&) {
      if (status.state != RunState::fault) throw;
    }
  };
  bool synced = false;
  as_owner([&] {
    if (status.state == RunState::stopped) this->record({JournalRecord::Kind::stopped});
    attempt([&] {
      journal_.sync();
      synced = true;
    });
    if (status.state == RunState::complete) write_final_files(wait);
  });
  as_owner([&] {
    if (synced) attempt([&] { write_progress(path_, counted({})); });
    std::error_code ignored;
    fs::remove(lock_.folder() / stopped_marker_name, ignored);  // from here on this STATUS is final
    attempt([&] { write_status(path_, status); });
    replace_file(lock_.folder() / job_record_name, record + '\n');
  });
}

void RunDirectory::write_final_files(const DiskWait& wait) {
  require(ledger_.done() == ledger_.requests(), "a complete run has a result for every request");
  replace_file(path_ / results_name, [&](DurableFile& file) { ledger_.write_lines(file, false, wait); });
  wait.moved();
  if (ledger_.failed() == 0) {
    std::error_code ignored;
    fs::remove(path_ / errors_name, ignored);
    return sync_directory(path_);
  }
  replace_file(path_ / errors_name, [&](DurableFile& file) { ledger_.write_lines(file, true, wait); });
}

RunProgress RunDirectory::counted(RunProgress progress) const {
  progress.requests = ledger_.requests();
  progress.done = ledger_.done();
  progress.failed = ledger_.failed();
  progress.updated = std::time(nullptr);
  return progress;
}

}  // namespace maniple
