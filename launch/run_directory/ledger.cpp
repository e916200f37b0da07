#include <kernels/support/check.hpp>
#include <launch/run_directory/ledger.hpp>

namespace maniple {
namespace {

constexpr uint64_t stride = 1024;                     // records
constexpr uint64_t piece_bytes = uint64_t{64} << 20;  // between two syncs
constexpr int offset_bits = 44;  // above the failed bit; the journal's number is above these

}  // namespace

Ledger::Ledger(uint64_t requests, const Shard& shard, std::shared_ptr<OpenJournals> open_journals)
    : shard_(shard), locations_(shard.share_of(requests)), open_journals_(std::move(open_journals)) {}

uint64_t Ledger::replay(const std::filesystem::path& journal, JobEnd end, const DiskWait& wait) {
  open(journal);
  JournalReader reader(journal);
  for (uint64_t count = 1; const std::optional<JournalReader::Entry> entry = reader.next(); ++count) {
    const bool passed_over = end == JobEnd::fault && entry->record.kind == JournalRecord::Kind::stopped;
    if (concerns(entry->record) && !passed_over) take(entry->record, entry->offset);
    if (count % stride == 0) wait.moved();
  }
  if (end == JobEnd::outside) in_flight_.clear();
  for (const auto& [request, alone] : in_flight_) {
    Faults& faults = faults_[request];
    ++faults.count;
    faults.alone |= alone;
  }
  in_flight_.clear();
  return reader.dropped_bytes();
}

bool Ledger::concerns(const JournalRecord& record) const {
  return record.kind == JournalRecord::Kind::stopped ||
         (shard_.holds(record.request) && record.request / shard_.count < locations_.size());
}

void Ledger::take(const JournalRecord& record, uint64_t offset) {
  require(concerns(record), "a journal tells of requests of this run only");
  switch (record.kind) {
    case JournalRecord::Kind::started:
      in_flight_.try_emplace(record.request, false);
      break;
    case JournalRecord::Kind::started_alone:
      in_flight_[record.request] = true;
      break;
    case JournalRecord::Kind::finished:
    case JournalRecord::Kind::failed:
      settle(record, offset);
      break;
    case JournalRecord::Kind::stopped:
      in_flight_.clear();
      break;
  }
}

// A result stays. An error is replaced by a later attempt's outcome, and clears a quarantine.
void Ledger::settle(const JournalRecord& record, uint64_t offset) {
  const bool failed = record.kind == JournalRecord::Kind::failed;
  in_flight_.erase(record.request);
  if (failed && faults_.contains(record.request)) faults_[record.request].alone = false;
  if (has_result(record.request) && !has_failed(record.request)) return;
  uint64_t& location = locations_[record.request / shard_.count];
  if (location == 0) ++done_;
  if ((location & failed_bit) != 0) --failed_;
  if (failed) ++failed_;
  location = uint64_t{journals_.size()} << (offset_bits + 1) | offset << 1 | (failed ? failed_bit : 0);
}

bool Ledger::is_suspect(uint64_t request) const {
  const auto found = faults_.find(request);
  return found != faults_.end() && found->second.count >= 2;
}

bool Ledger::is_quarantined(uint64_t request) const {
  const auto found = faults_.find(request);
  return found != faults_.end() && found->second.alone;
}

std::string Ledger::line(uint64_t request) const {
  const uint64_t packed = location(request) >> 1;
  const uint64_t offset = packed & ((uint64_t{1} << offset_bits) - 1);
  return open_journals_->at(journals_[(packed >> offset_bits) - 1]).line_at(offset);
}

void Ledger::write_lines(DurableFile& file, bool failed, const DiskWait& wait) const {
  uint64_t synced = 0;
  for (uint64_t i = 0; i < locations_.size(); ++i) {
    if (i % stride == 0) wait.moved();
    if (file.size() - synced >= piece_bytes) {
      file.sync();
      synced = file.size();
      wait.moved();
    }
    const uint64_t request = i * shard_.count + shard_.index;
    if (!has_result(request) || has_failed(request) != failed) continue;
    file.append(line(request));
    file.append("\n");
  }
}

}  // namespace maniple
