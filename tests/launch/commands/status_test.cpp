#include <launch/commands/commands.hpp>

#include "../run_directory/run_directory_testing.hpp"

#include <sys/stat.h>

#include <thread>

namespace maniple {
namespace {

using testing::Scratch;
using testing::write_content;
namespace fs = std::filesystem;

// A run whose first job was killed; the second one has said all but STATUS.
fs::path run_with_two_jobs(const Scratch& scratch) {
  const fs::path& run = scratch.path();
  fs::create_directories(run / "jobs" / "1");
  fs::create_directories(run / "jobs" / "2");
  write_content(run / "jobs" / "1" / "owner.json", R"({"host": "here", "pid": 1, "heartbeat": 0})");
  write_content(run / "jobs" / "2" / job_record_name, "{}");
  write_status(run, {});
  write_progress(run, {});
  return run;
}

ExitCode status_of(const fs::path& run) {
  ::testing::internal::CaptureStdout();
  const ExitCode code = run_status({run, /*rc=*/true, /*watch=*/false});
  ::testing::internal::GetCapturedStdout();
  return code;
}

TEST(Status, OfAJobThatEndedWithoutAWordIsAFault) {
  const Scratch scratch;
  EXPECT_EQ(status_of(run_with_two_jobs(scratch)), ExitCode::fault);
}

TEST(Status, OfARunThatEndsWhileItIsJudgedIsTheNewOne) {
  const Scratch scratch;
  const fs::path run = run_with_two_jobs(scratch), fault = run / "jobs" / "2" / "fault.json";
  ASSERT_EQ(::mkfifo(fault.c_str(), 0600), 0);
  const std::jthread job([&] {
    const std::ofstream pipe(fault);  // opened when STATUS has been read, and the job is looked at
    write_status(run, {RunState::complete, 0});
    fs::remove(fault);
  });
  EXPECT_EQ(status_of(run), ExitCode::complete);
}

}  // namespace
}  // namespace maniple
