#include <launch/commands/commands.hpp>

#include "../run_directory/run_directory_testing.hpp"

#include <nlohmann/json.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <thread>

namespace maniple {
namespace {

using testing::Scratch;
using testing::write_content;
namespace fs = std::filesystem;

// A run whose first job was killed; the second one has written all but STATUS.
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
  const ExitCode code = run_status({.run_dirs = {run}, .rc = true});
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

// A job that was killed after it had finished one of its two requests, before it reported any.
void kill_midway(const fs::path& path) {
  RunDirectory::Options settings;
  settings.path = path;
  settings.manifest = testing::manifest_of(2);
  settings.manifest.set("shard", "0/1");
  settings.me = this_process("here", "7");
  {
    RunDirectory run(settings);
    run.record({JournalRecord::Kind::finished, 1, "line"});
    run.sync();
  }
  write_content(path / "jobs" / "1" / "owner.json",
                R"({"host": "here", "pid": 1, "job": "7", "heartbeat": 0})");
}

void finish_run(const fs::path& path, const RunStatus& status) {
  fs::create_directories(path / "jobs");
  RunProgress counts;
  counts.requests = counts.done = 2;
  write_progress(path, counts);
  write_status(path, status);
}

struct Shown {
  ExitCode code;
  std::string text, errors;
};
Shown shown(const StatusOptions& options) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const ExitCode code = run_status(options);
  std::string text = ::testing::internal::GetCapturedStdout();
  return {code, std::move(text), ::testing::internal::GetCapturedStderr()};
}

TEST(Status, CountsWhatTheJournalsOfAKilledJobHold) {
  const Scratch scratch;
  kill_midway(scratch.path());
  EXPECT_EQ(read_progress(scratch.path())->done, 0U);
  const Shown status = shown({.run_dirs = {scratch.path()}, .rc = true});
  EXPECT_EQ(status.code, ExitCode::fault);
  EXPECT_NE(status.text.find("fault, 1 of 2 requests done"), std::string::npos) << status.text;
  EXPECT_NE(status.text.find("one rank a node"), std::string::npos) << "what else it may have been";
}

TEST(Status, AsJsonIsAnObjectALine) {
  const Scratch scratch;
  kill_midway(scratch.path());
  write_content(scratch.path() / "jobs" / "1" / fault_record_name,
                R"({"rank": 3, "host": "n7", "phase": "step", "step": 5, "what": "has died"})");
  const auto told = nlohmann::json::parse(shown({.run_dirs = {scratch.path()}, .json = true}).text);
  EXPECT_EQ(told["directory"], scratch.path().string());
  EXPECT_EQ(told["state"], "fault");
  EXPECT_EQ(told["exit_code"], 76);
  EXPECT_EQ(told["requests"], 2);
  EXPECT_EQ(told["done"], 1);
  EXPECT_EQ(told["failed"], 0);
  EXPECT_EQ(told["job"]["slurm_job"], "7");
  EXPECT_EQ(told["job"]["host"], "here");
  EXPECT_EQ(told["fault"]["rank"], 3);
  EXPECT_FALSE(told.contains("results"));
}

TEST(Status, OfSeveralRunsIsTheWorst) {
  const Scratch scratch;
  const fs::path done = scratch.path() / "done", failed = scratch.path() / "failed",
                 stopped = scratch.path() / "stopped", fault = scratch.path() / "fault";
  finish_run(done, {RunState::complete, 0});
  finish_run(failed, {RunState::complete, 1});
  finish_run(stopped, {RunState::stopped, 75});
  finish_run(fault, {RunState::fault, 70});
  EXPECT_EQ(shown({.run_dirs = {done, failed}, .rc = true}).code, ExitCode::some_requests_failed);
  EXPECT_EQ(shown({.run_dirs = {stopped, done}, .rc = true}).code, ExitCode::stopped);
  EXPECT_EQ(shown({.run_dirs = {done, fault, stopped}, .rc = true}).code, ExitCode::internal);
  const Shown all = shown({.run_dirs = {stopped, scratch.path() / "none", done}});
  EXPECT_EQ(all.code, ExitCode::input) << "one is no run directory";
  EXPECT_EQ(std::ranges::count(all.text, '\n'), 2) << all.text;
  EXPECT_NE(all.text.find("FAILED"), std::string::npos) << "what sacct shows of a planned stop";
  EXPECT_NE(all.errors.find("none is no run directory"), std::string::npos) << all.errors;
}

TEST(Status, ShowsTheLoadOfExpertsOfAJobThatHasEnded) {
  const Scratch scratch;
  finish_run(scratch.path(), {RunState::stopped, 75});
  EXPECT_EQ(shown({.run_dirs = {scratch.path()}}).text.find("experts"), std::string::npos)
      << "none are known";
  write_experts(scratch.path(), R"([{"layer": 0, "hottest": 0.2, "imbalance": 1.6, "unused": 1},
                                    {"layer": 3, "hottest": 0.3, "imbalance": 2.4, "unused": 2}])");
  const Shown ended = shown({.run_dirs = {scratch.path()}});
  EXPECT_NE(ended.text.find("; experts: at most 2.4 times the mean (layer 3), 3 unused"), std::string::npos)
      << ended.text;
  const auto told = nlohmann::json::parse(shown({.run_dirs = {scratch.path()}, .json = true}).text);
  EXPECT_EQ(told["experts"].size(), 2U);
  write_status(scratch.path(), {});
  const Shown running = shown({.run_dirs = {scratch.path()}});
  EXPECT_NE(running.text.find("running"), std::string::npos) << running.text;
  EXPECT_EQ(running.text.find("experts"), std::string::npos)
      << "they are of an earlier job: " << running.text;
}

}  // namespace
}  // namespace maniple
