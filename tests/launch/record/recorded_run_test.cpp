#include <kernels/support/check.hpp>
#include <launch/record/recorded_run.hpp>
#include <launch/run_directory/run_lock.hpp>

#include <support/made_records.hpp>
#include <support/temp_directory.hpp>

#include <gmock/gmock.h>

#include <chrono>

namespace maniple {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path job_folder(const TempDirectory& scratch, int number) {
  const fs::path folder = scratch / "jobs" / std::to_string(number);
  fs::create_directories(folder);
  return folder;
}

std::string owner_text(int64_t heartbeat_ms) {
  return R"({"host": "elsewhere", "pid": 1, "machine": "m", "heartbeat": )" + std::to_string(heartbeat_ms) +
         "}";
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST(RecordedRun, OfARunDirectoryHasTheJobsThatRecorded) {
  const TempDirectory scratch;
  write_record_file(made_job({.seconds = 4}), job_folder(scratch, 2) / "record.h5");
  job_folder(scratch, 9);  // recorded nothing
  write_log(made_job({.seconds = 8}), job_folder(scratch, 10) / "record.log");
  const RecordedRun run = read_run(scratch.path());
  ASSERT_EQ(run.jobs.size(), 2U);
  EXPECT_EQ(run.jobs[0].name, "job 2");
  EXPECT_FALSE(is_log(run.jobs[0]));
  EXPECT_EQ(run.jobs[1].name, "job 10");
  EXPECT_TRUE(is_log(run.jobs[1]));
  EXPECT_NEAR(last_row_s(run.jobs[1].record), 8, 0.1);
}

TEST(RecordedRun, IsTheSameFromTheFolderOfAJobAndFromItsFile) {
  const TempDirectory scratch;
  const fs::path folder = job_folder(scratch, 1);
  write_record_file(made_job({}), folder / "record.h5");
  EXPECT_EQ(column(read_run(folder).jobs.at(0).record, "steps", "tokens"),
            column(read_run(folder / "record.h5").jobs.at(0).record, "steps", "tokens"));
}

TEST(RecordedRun, OfAFileThatIsNotThereYetIsItsLog) {
  const TempDirectory scratch;
  write_log(made_job({.complete = false}), scratch / "a.h5.log");
  EXPECT_TRUE(is_log(read_run(scratch / "a.h5").jobs.at(0)));
}

TEST(RecordedRun, WithoutARecordIsRefused) {
  const TempDirectory scratch;
  job_folder(scratch, 1);
  try {
    read_run(scratch.path());
    FAIL() << "was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    EXPECT_THAT(error.what(), HasSubstr("has no record"));
  }
}

TEST(RecordedRun, OfAKilledJobSaysHowManySecondsAreMissing) {
  const TempDirectory scratch;
  const fs::path folder = job_folder(scratch, 1);
  write_log(made_job({.complete = false}), folder / "record.log");
  scratch.write("jobs/1/owner.json", owner_text(now_ms() - 100'000));
  fs::last_write_time(folder / "record.log",
                      fs::file_time_type::clock::now() - std::chrono::milliseconds(101'500));
  const RecordedRun run = read_run(scratch.path());
  EXPECT_FALSE(run.jobs.at(0).running);
  EXPECT_NEAR(run.jobs.at(0).missing_s.value(), 1.5, 0.2);
  EXPECT_THAT(ending_text(run.jobs[0]), HasSubstr("job 1 did not end: read as far as it goes, to 40.0 s"));
  EXPECT_THAT(ending_text(run.jobs[0]), HasSubstr("s to its last heartbeat are missing"));
}

TEST(RecordedRun, OfAJobAtWorkSaysThatItRuns) {
  const TempDirectory scratch;
  write_log(made_job({.complete = false}), job_folder(scratch, 1) / "record.log");
  scratch.write("jobs/1/owner.json", owner_text(now_ms() - 2000));
  EXPECT_THAT(ending_text(read_run(scratch.path()).jobs.at(0)), HasSubstr("job 1 is running"));
}

TEST(RecordedRun, OfALogEndsAtItsLastWholeFrame) {
  const TempDirectory scratch;
  write_log(made_job({}), scratch / "a.log");
  fs::resize_file(scratch / "a.log", fs::file_size(scratch / "a.log") - 1);  // in the last frame
  const RecordedRun run = read_run(scratch / "a.log");
  EXPECT_EQ(column(run.jobs[0].record, "samples", "value").size(), 6U);
  EXPECT_THAT(ending_text(run.jobs[0]), HasSubstr("did not end"));
}

}  // namespace
}  // namespace maniple
