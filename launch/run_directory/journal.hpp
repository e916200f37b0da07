// The journal of one job: what happened to its requests, in order. An append-only file of records, each with
// its length and a checksum. A job never writes into the journal of another job.
// It is a framed log: the frame's tag is the request, its bytes are the line.
#pragma once

#include <launch/run_directory/framed_log.hpp>

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
  explicit JournalWriter(std::filesystem::path path) : frames_(std::move(path)) {}

  uint64_t append(const JournalRecord& record);  // its offset in the file
  void flush() { frames_.flush(); }              // see DurableFile
  void sync() { frames_.sync(); }

 private:
  FrameWriter frames_;
};

// Fails (fault) if the file cannot be read. A torn or damaged record is the end of the journal.
class JournalReader {
 public:
  explicit JournalReader(std::filesystem::path path) : frames_(std::move(path)) {}

  struct Entry {
    uint64_t offset = 0;
    JournalRecord record;  // its line lives until the next call
  };
  std::optional<Entry> next();
  uint64_t dropped_bytes() const { return frames_.dropped_bytes(); }

  // The line of any record, by its offset from next() or append().
  std::string line_at(uint64_t offset) const { return frames_.bytes_at(offset); }

 private:
  FrameReader frames_;
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
