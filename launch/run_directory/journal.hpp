// The journal of one job: what happened to its requests, in order. An append-only file of records, each with
// its length and a checksum. A job never writes into the journal of another job.
//
// A record is, little-endian: XXH64 (8 bytes) of all that follows, seeded with the record's offset in the
// file; the line's length (4), the kind (4), the request (8), the line.
#pragma once

#include <launch/run_directory/durable_file.hpp>

#include <cstdio>
#include <memory>
#include <unordered_map>

namespace maniple {

struct JournalRecord {
  enum class Kind : uint32_t {
    started = 1,        // the request's first step is about to run
    started_alone = 2,  // and no other request is running
    finished = 3,       // line: its result
    failed = 4,         // line: its error
    stopped = 5,        // the job ends on purpose: unfinished requests are no fault, unless the job's folder
                        // records one
  };
  Kind kind = Kind::started;
  uint64_t request = 0;
  std::string_view line = {};
};

class JournalWriter {
 public:
  explicit JournalWriter(std::filesystem::path path) : file_(std::move(path)) {}

  uint64_t append(const JournalRecord& record);  // its offset in the file
  void flush() { file_.flush(); }                // see DurableFile
  void sync() { file_.sync(); }

 private:
  DurableFile file_;
};

// Fails (fault) if the file cannot be read. A torn or damaged record is the end of the journal.
class JournalReader {
 public:
  explicit JournalReader(std::filesystem::path path);

  struct Entry {
    uint64_t offset = 0;
    JournalRecord record;  // its line lives until the next call
  };
  std::optional<Entry> next();
  uint64_t dropped_bytes() const { return size_ - offset_; }  // after the last whole record; valid at the end

  // The line of any record, by its offset from next() or append().
  std::string line_at(uint64_t offset) const;

 private:
  [[noreturn]] void fail_to_read() const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  uint64_t size_ = 0;    // when it was opened
  uint64_t offset_ = 0;  // of the next record
  std::string line_;
};

// Opens journals when they are needed: a run may have more journals than a process may have open files.
class OpenJournals {
 public:
  // The reader lives until the next call.
  const JournalReader& at(const std::filesystem::path& path);

 private:
  static constexpr size_t most = 128;
  std::unordered_map<std::string, JournalReader> open_;
};

}  // namespace maniple
