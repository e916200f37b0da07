#include "run_directory_testing.hpp"

#include <random>

namespace maniple {
namespace {

using testing::content_of;
using testing::records_of;
using testing::Scratch;
using testing::Told;
using testing::write_content;
using Kind = JournalRecord::Kind;

// Lines with any content: newlines, zero bytes, bytes that look like a record.
std::vector<Told> random_records(std::mt19937& random, size_t count) {
  std::vector<Told> records;
  for (size_t i = 0; i < count; ++i) {
    std::string line(random() % 60, '\0');
    for (char& byte : line) byte = static_cast<char>(random() % 3 == 0 ? 0 : random());
    records.push_back({static_cast<Kind>(1 + random() % 5), random(), line});
  }
  return records;
}

std::vector<uint64_t> write_records(const std::filesystem::path& path, const std::vector<Told>& records) {
  JournalWriter writer(path);
  std::vector<uint64_t> offsets;
  for (const Told& record : records)
    offsets.push_back(writer.append({record.kind, record.request, record.line}));
  writer.sync();
  return offsets;
}

std::vector<Told> first(const std::vector<Told>& records, size_t count) {
  return {records.begin(), records.begin() + static_cast<std::ptrdiff_t>(count)};
}

TEST(Journal, GivesBackWhatWasWrittenAlsoOutOfOrder) {
  const Scratch scratch;
  std::mt19937 random(1);
  const std::vector<Told> records = random_records(random, 500);
  const std::vector<uint64_t> offsets = write_records(scratch.path() / "journal", records);
  EXPECT_EQ(records_of(scratch.path() / "journal"), records);
  JournalReader reader(scratch.path() / "journal");
  for (size_t i = records.size(); i-- > 0;) EXPECT_EQ(reader.line_at(offsets[i]), records[i].line);
  while (reader.next()) {
  }
  EXPECT_EQ(reader.dropped_bytes(), 0U);
}

TEST(Journal, CutAtAnyByteKeepsEveryWholeRecordAndNothingElse) {
  const Scratch scratch;
  std::mt19937 random(2);
  const std::vector<Told> records = random_records(random, 40);
  const std::filesystem::path path = scratch.path() / "journal";
  const std::vector<uint64_t> offsets = write_records(path, records);
  size_t kept = records.size();
  for (size_t size = std::filesystem::file_size(path); size-- > 0;) {
    if (size < (kept == records.size() ? SIZE_MAX : offsets[kept])) --kept;
    std::filesystem::resize_file(path, size);
    ASSERT_EQ(records_of(path), first(records, kept)) << "cut at byte " << size;
    // Bytes that a crashed machine may leave after the cut. (Zeros may equal the end of the record.)
    std::filesystem::resize_file(path, size + 64);
    const std::vector<Told> zeros = records_of(path);
    ASSERT_GE(zeros.size(), kept) << "zeros from byte " << size;
    ASSERT_EQ(zeros, first(records, zeros.size())) << "zeros from byte " << size;
  }
  EXPECT_EQ(kept, 0U);
}

void flip(const std::filesystem::path& path, size_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(static_cast<char>(byte ^ (1 << (bit % 8))));
}

TEST(Journal, AFlippedBitEndsItBeforeTheRecordThatHoldsIt) {
  const Scratch scratch;
  std::mt19937 random(3);
  const std::vector<Told> records = random_records(random, 12);
  const std::filesystem::path path = scratch.path() / "journal";
  const std::vector<uint64_t> offsets = write_records(path, records);
  const size_t bits = std::filesystem::file_size(path) * 8;
  for (size_t bit = 0; bit < bits; ++bit) {
    flip(path, bit);
    const auto hit = std::upper_bound(offsets.begin(), offsets.end(), bit / 8) - offsets.begin() - 1;
    ASSERT_EQ(records_of(path), first(records, static_cast<size_t>(hit))) << "bit " << bit;
    flip(path, bit);
  }
}

TEST(Journal, ARecordCountsOnlyWhereItWasWritten) {
  const Scratch scratch;
  const std::vector<Told> records = {{Kind::finished, 7, "x"}, {Kind::finished, 8, "y"}};
  write_records(scratch.path() / "journal", records);
  const std::string whole = content_of(scratch.path() / "journal");
  write_content(scratch.path() / "copied",
                whole.substr(whole.size() / 2) + whole.substr(0, whole.size() / 2));
  EXPECT_TRUE(records_of(scratch.path() / "copied").empty());
}

TEST(Journal, OfAnotherJobIsNeverWrittenInto) {
  const Scratch scratch;
  write_content(scratch.path() / "journal", "x");
  EXPECT_THROW(JournalWriter(scratch.path() / "journal"), Error);
  EXPECT_EQ(content_of(scratch.path() / "journal"), "x");
}

}  // namespace
}  // namespace maniple
