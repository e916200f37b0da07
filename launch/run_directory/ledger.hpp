// What the journals of a run say about each request: where its result stands, and in how many faults it was
// in flight. 8 bytes a request.
#pragma once

#include <launch/run_directory/disk_wait.hpp>
#include <launch/run_directory/journal.hpp>

#include <unordered_map>
#include <vector>

namespace maniple {

// Of the requests of an input, counted from 0, those with request % count == index.
struct Shard {
  uint64_t index = 0;
  uint64_t count = 1;
  bool holds(uint64_t request) const { return request % count == index; }
  uint64_t share_of(uint64_t requests) const { return (requests + count - 1 - index) / count; }
};

// How a job ended that did not say so itself. untold: nobody was there to see it. outside: the whole job was
// killed, or its launcher, or a node went, or no step ran: no fault of a request.
enum class JobEnd : uint8_t { untold, fault, outside };

class Ledger {
 public:
  // Ledgers that are used by turns may share their open journals.
  Ledger(uint64_t requests, const Shard& shard,
         std::shared_ptr<OpenJournals> open_journals = std::make_shared<OpenJournals>());

  // Is this of a request that the ledger keeps?
  bool concerns(const JournalRecord& record) const;
  // Takes the next journal, of a job that has ended; by a fault even if it was told to stop. Passes over what
  // does not concern it. Returns the number of bytes that were torn or damaged.
  uint64_t replay(const std::filesystem::path& journal, JobEnd end = JobEnd::untold,
                  const DiskWait& wait = DiskWait(nullptr));
  // The journal of the running job, behind those that were replayed; its records are told as they are
  // written.
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

  // Of its result. One thread at a time, here and below.
  std::string line(uint64_t request) const;
  // Appends the lines of those that failed, or of the others, in the order of the input; synced in pieces, so
  // that no wait for the disk is long.
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
