#include <launch/record/record_file.hpp>
#include <launch/record/recorder.hpp>

#include <gtest/gtest.h>
#include <support/temp_directory.hpp>
#include <support/test_data.hpp>

#include <cmath>
#include <fstream>
#include <numeric>

namespace maniple {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

StepRow step_row(uint64_t step, uint32_t replica = 0) {
  StepRow row;
  row.step = step;
  row.replica = replica;
  row.planned_s = static_cast<double>(step);
  row.answered_s = static_cast<double>(step) + 0.5;
  row.tokens = step * 3;
  return row;
}

RequestRow request_row(uint64_t id) {
  RequestRow row;
  row.id = id;
  row.output = id + 1;
  std::string_view("stop").copy(row.reason, sizeof row.reason);
  return row;
}

// A log of 40 frames: step i and request i each.
void write_log(const fs::path& path, bool complete) {
  RecordLogWriter log(path);
  log.text("version", "1.2.3");
  for (uint64_t i = 0; i < 20; ++i) {
    const StepRow step = step_row(i);
    const RequestRow request = request_row(i);
    log.rows(TableId::steps, std::span(&step, 1));
    log.rows(TableId::requests, std::span(&request, 1));
  }
  if (complete) log.complete();
  log.flush();
}

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

void expect_same(const Record& one, const Record& other) {
  EXPECT_EQ(one.version, other.version);
  EXPECT_EQ(one.complete, other.complete);
  EXPECT_EQ(one.texts, other.texts);
  ASSERT_EQ(one.tables.size(), other.tables.size());
  for (const StoredTable& table : one.tables) {
    const StoredTable* same = other.find(table.table.name);
    ASSERT_NE(same, nullptr) << table.table.name;
    EXPECT_EQ(table.rows, same->rows) << table.table.name;
    for (size_t field = 0; field < table.table.fields.size(); ++field) {
      EXPECT_EQ(table.table.fields[field].name, same->table.fields[field].name);
      EXPECT_EQ(table.table.fields[field].type, same->table.fields[field].type);
      EXPECT_EQ(table.table.fields[field].offset, same->table.fields[field].offset);
    }
  }
}

TEST(Record, IsTheSameInItsLogAndInItsFile) {
  const TempDirectory folder;
  write_log(folder / "record.log", true);
  const Record log = read_record(folder / "record.log");
  EXPECT_TRUE(log.complete);
  EXPECT_EQ(log.texts.at("version"), "1.2.3");
  ASSERT_NE(log.find("steps"), nullptr);
  EXPECT_EQ(sum(log.find("steps")->column("tokens")), 3 * 190);
  EXPECT_EQ(log.find("requests")->text_at("reason", 3), "stop");
  write_record_file(log, folder / "record.h5");
  expect_same(log, read_record(folder / "record.h5"));
  EXPECT_FALSE(fs::exists(folder / "record.h5.part"));
}

// A job that is killed leaves any beginning of its log.
TEST(Record, OfALogThatEndsAnywhereHasAllWholeFrames) {
  const TempDirectory folder;
  write_log(folder / "whole", false);
  const std::string whole = content_of(folder / "whole");
  size_t rows = 40;
  for (size_t cut = 0; cut <= 1500; ++cut) {
    std::ofstream(folder / "cut.log", std::ios::binary)
        .write(whole.data(), static_cast<std::streamsize>(whole.size() - cut));
    const Record record = read_record(folder / "cut.log");
    EXPECT_FALSE(record.complete);
    const size_t left = record.find("steps")->size() + record.find("requests")->size();
    ASSERT_LE(left, rows) << cut;
    ASSERT_GE(left + 1, rows) << cut;
    if (left < rows) {
      EXPECT_GT(record.dropped_bytes, 0U) << cut;
    }
    rows = left;
    if (cut % 100 != 0) continue;
    write_record_file(record, folder / "cut.h5");
    expect_same(record, read_record(folder / "cut.h5"));
  }
  EXPECT_LT(rows, 38U);
}

TEST(Record, ThatIsDamagedEndsAtTheDamage) {
  const TempDirectory folder;
  write_log(folder / "whole", true);
  std::string bytes = content_of(folder / "whole");
  bytes[bytes.size() - 600] ^= 1;
  std::ofstream(folder / "damaged.log", std::ios::binary) << bytes;
  const Record record = read_record(folder / "damaged.log");
  EXPECT_FALSE(record.complete);
  EXPECT_GT(record.dropped_bytes, 0U);
  EXPECT_GT(record.find("steps")->size(), 10U);
}

void expect_refused(const fs::path& path, const std::string& words) {
  try {
    read_record(path);
    FAIL() << path;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// An empty table is said to have 2^47 rows.
TEST(Record, RefusesAFileThatCannotBeReadAndBlamesNoMemory) {
  const TempDirectory folder;
  std::string bytes = content_of(test_data() / "schema-1.0" / "record.h5");
  bytes.at(48149) = '\x80';
  folder.write("damaged.h5", bytes);
  expect_refused(folder / "damaged.h5", "damaged.h5: the process that read it with the HDF5 library");
}

TEST(Record, RefusesWhatIsNone) {
  const TempDirectory folder;
  folder.write("text.h5", "not a record");
  expect_refused(folder / "text.h5", "no log of a record");
  folder.write("empty.log", "");
  expect_refused(folder / "empty.log", "no log of a record");
  expect_refused(folder / "nowhere.h5", "there is no record");
  write_log(folder / "record.log", true);
  Record later = read_record(folder / "record.log");
  later.version = "2.0";
  write_record_file(later, folder / "later.h5");
  expect_refused(folder / "later.h5", "schema 2.0, and this version reads 1.0");
  std::string bytes = content_of(folder / "later.h5");
  for (const size_t size : {9UL, 100UL, bytes.size() / 2, bytes.size() - 1}) {
    folder.write("short.h5", bytes.substr(0, size));
    expect_refused(folder / "short.h5", "cannot read");
  }
}

TEST(Record, OfALaterMinorVersionKeepsItsOtherFields) {
  const TempDirectory folder;
  RecordTable table = record_tables()[1];
  table.fields.push_back({"added_s", FieldType::f64, table.row_bytes, 8, "s"});
  table.row_bytes += 8;
  {
    FrameWriter frames(folder / "later.log");
    frames.append({0, 0, std::string("1.7") + '\0' + schema_json({table})});
    frames.append({16, 1, std::string(table.row_bytes, '\0')});
    frames.flush();
  }
  const Record record = read_record(folder / "later.log");
  EXPECT_EQ(record.version, "1.7");
  EXPECT_EQ(record.find("steps")->column("added_s"), std::vector<double>{0});
  EXPECT_TRUE(std::isnan(record.find("steps")->column("of_no_version")[0]));
}

Recorder::Options options_in(const fs::path& folder) {
  Recorder::Options options;
  options.file = folder / "record.h5";
  options.log = folder / "record.log";
  return options;
}

class RecorderTest : public ::testing::Test {
 protected:
  TempDirectory folder_;
  RankSeries series_{RankLocation{}};
};

TEST_F(RecorderTest, WritesTheFileAndRemovesTheLog) {
  RankActivity activity;
  activity.steps = 7;
  Recorder recorder(options_in(folder_.path()), series_);
  recorder.start();
  for (uint64_t i = 0; i < 1000; ++i) recorder.step(step_row(i, i % 2));
  recorder.request(request_row(5));
  series_.heard(1, series_.own(activity));
  recorder.drain();
  recorder.text("seed", "5");
  recorder.complete();
  EXPECT_FALSE(fs::exists(folder_ / "record.log"));
  const Record record = read_record(folder_.path());
  EXPECT_TRUE(record.complete);
  EXPECT_EQ(record.find("steps")->size(), 1000U);
  EXPECT_EQ(record.find("requests")->size(), 1U);
  EXPECT_EQ(record.texts.at("seed"), "5");
  ASSERT_EQ(record.find("rank_series")->size(), 1U);
  EXPECT_EQ(record.find("rank_series")->column("steps")[0], 7);
  EXPECT_GT(record.find("rank_series")->column("rss_bytes")[0], 1 << 20);
}

TEST_F(RecorderTest, LeavesALogThatCanBeReadWhileItWrites) {
  Recorder recorder(options_in(folder_.path()), series_);
  recorder.start();
  recorder.step(step_row(1));
  const auto steps = [&] {
    const Record record = read_record(folder_ / "record.log");
    return record.find("steps")->size();
  };
  for (int polls = 0; steps() < 1; ++polls) {
    ASSERT_LT(polls, 600);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST_F(RecorderTest, EndsStepsAndHeartbeatsAtHalfOfItsLimitAndKeepsAllRequests) {
  constexpr uint64_t limit = 200'000, rows = 600;
  Recorder::Options options = options_in(folder_.path());
  options.limit = limit;
  Recorder recorder(options, series_);
  recorder.start();
  series_.heard(0, {});
  recorder.step(step_row(7));
  recorder.drain();
  for (uint64_t i = 8; i < rows; ++i) recorder.step(step_row(i));
  for (uint64_t i = 0; i < rows; ++i) recorder.request(request_row(i));
  series_.heard(0, {});
  recorder.drain();
  recorder.step(step_row(rows));  // which would fit
  recorder.drain();
  EXPECT_LT(fs::file_size(folder_ / "record.log"), limit);
  recorder.rows(TableId::ranks, std::vector<RankRow>(4));
  recorder.complete();
  const Record record = read_record(folder_.path());
  EXPECT_TRUE(record.complete);
  EXPECT_EQ(record.find("steps")->size(), 1U);
  EXPECT_EQ(record.find("rank_series")->size(), 1U);
  EXPECT_EQ(record.texts.at("steps_until_s"), "7.5");
  EXPECT_EQ(record.find("requests")->size(), rows);
  EXPECT_EQ(record.find("ranks")->size(), 4U);
}

TEST_F(RecorderTest, EndsWhereTheDiskTakesNoMore) {
  testing::internal::CaptureStderr();
  Recorder recorder(options_in(folder_ / "nowhere"), series_);
  recorder.start();
  recorder.step(step_row(1));
  recorder.drain();
  recorder.complete();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the job goes on without it"), std::string::npos);
}

}  // namespace
}  // namespace maniple
