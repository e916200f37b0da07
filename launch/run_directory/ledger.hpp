// What the journals of a run say about each request: where its result
// is, and in how many faults it was in flight. 8 bytes per request.
#pragma once

#include <launch/run_directory/disk_wait.hpp>
#include <launch/run_directory/journal.hpp>

#include <unordered_map>
#include <vector>

namespace maniple {

// The requests of an input, counted from 0, with request % count == index.
struct Shard {
  uint64_t index = 0;
  uint64_t count = 1;
  bool holds(uint64_t request) const { return request % count == index; }
  uint64_t share_of(uint64_t requests) const { return (requests + count - 1 - index) / count; }
};

// How a job ended that recorded no end. untold: no rank saw it end. outside: the whole
// job, its launcher or a node was killed, or no step ran: no fault of a request.
enum class JobEnd : uint8_t { untold, fault, outside };

class Ledger {
 public:
  // Ledgers that are used in turns may share their open journals.
  Ledger(uint64_t requests, const Shard& shard,
         std::shared_ptr<OpenJournals> open_journals = std::make_shared<OpenJournals>());

  // Whether the record concerns a request of this ledger.
  bool concerns(const JournalRecord& record) const;
  // Reads the next journal, of a job that has ended; after a fault, ignores a recorded stop.
  // Skips records that do not concern the ledger. Returns the number of torn or damaged bytes.
  uint64_t replay(const std::filesystem::path& journal, JobEnd end = JobEnd::untold,
                  const DiskWait& wait = DiskWait(nullptr));
  // The journal of the running job, after all replays. take() gets its records as they are written.
  void open(std::filesystem::path journal) { journals_.push_back(std::move(journal)); }
  void take(const JournalRecord& record, uint64_t offset);

  bool has_result(uint64_t request) const { return (location(request) & ~failed_bit) != 0; }
  bool has_failed(uint64_t request) const { return (location(request) & failed_bit) != 0; }
  // In flight in two faults: to be run alone. Quarantined: in flight alone in a fault.
  bool is_suspect(uint64_t request) const;
  bool is_quarantined(uint64_t request) const;

  uint64_t requests() const { return locations_.size(); }  // of the shard
  uint64_t done() const { return done_; }                  // the failed ones among them
  uint64_t failed() const { return failed_; }

  // The line of its result. One thread at a time, here and below.
  std::string line(uint64_t request) const;
  // Appends the lines of failed requests, or of the others, in the order
  // of the input. Syncs in pieces, to keep each wait for the disk short.
  void write_lines(DurableFile& file, bool failed, const DiskWait& wait = DiskWait(nullptr)) const;

 private:
  static constexpr uint64_t failed_bit = 1;
  struct Faults {
    uint32_t count = 0;
    bool alone = false;
  };

  uint64_t location(uint64_t request) const { return locations_[request / shard_.count]; }
  void settle(const JournalRecord& record, uint64_t offset);

  Shard shard_;
  std::vector<uint64_t> locations_;  // 0: no result; else journal (from 1), offset, failed_bit
  std::vector<std::filesystem::path> journals_;
  std::shared_ptr<OpenJournals> open_journals_;
  std::unordered_map<uint64_t, bool> in_flight_;  // alone?
  std::unordered_map<uint64_t, Faults> faults_;
  uint64_t done_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace maniple
