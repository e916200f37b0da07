#include <launch/run_directory/journal.hpp>

namespace maniple {

uint64_t JournalWriter::append(const JournalRecord& record) {
  return frames_.append({static_cast<uint32_t>(record.kind), record.request, record.line});
}

std::optional<JournalReader::Entry> JournalReader::next() {
  const std::optional<FrameReader::Entry> entry = frames_.next();
  if (!entry) return std::nullopt;
  const auto& [offset, frame] = *entry;
  return Entry{offset, {static_cast<JournalRecord::Kind>(frame.kind), frame.tag, frame.bytes}};
}

const JournalReader& OpenJournals::at(const std::filesystem::path& path) {
  if (const auto found = open_.find(path.native()); found != open_.end()) return found->second;
  if (open_.size() == most) open_.clear();
  return open_.try_emplace(path.native(), path).first->second;
}

}  // namespace maniple
