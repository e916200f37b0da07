#include <gmock/gmock.h>
#include <launch/run_directory/durable_file.hpp>
#include <launch/run_directory/run_status.hpp>
#include <launch/supervision/fault_reporter.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/scheduling/step_runner.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>
#include <tuple>

namespace maniple {
namespace {

namespace fs = std::filesystem;

// Rank 0 of four on two nodes.
struct TwoNodes : SelfWorld {
  int size() const override { return 4; }
  const std::vector<RankLocation>& locations() const override { return all_; }
  std::vector<RankLocation> all_{{"nid1", 0, 0, 2}, {"nid1", 0, 1, 2}, {"nid2", 1, 0, 2}, {"nid2", 1, 1, 2}};
};

class FaultReporterTest : public ::testing::Test {
 protected:
  FaultReporterTest() {
    fs::remove_all(run_);
    fs::create_directories(folder_);
    write_status(run_, {});
    fault_.last_seen.phase = Phase::step;
    fault_.last_seen.step = 812;
    fault_.last_seen.layer = 3;
    fault_.last_seen.running = 9;
    fault_.last_seen.first = {4, 0, 6, 7, 8, 9, 10, 11};
  }
  ~FaultReporterTest() override { fs::remove_all(run_); }

  // The stderr of a rank.
  std::string told(const std::string& slurm_job = "") {
    FaultReporter reporter(world_, slurm_job, log_);
    reporter.record_in(folder_);
    reporter.set_gpus({"GPU-0", "GPU-1", "GPU-2", "GPU-3"});
    ::testing::internal::CaptureStderr();
    reporter.report(fault_);
    return ::testing::internal::GetCapturedStderr();
  }

  const fs::path run_ = fs::temp_directory_path() / fmt::format("maniple-fault-{}", ::getpid());
  const fs::path folder_ = run_ / "jobs" / "1";
  TwoNodes world_;
  RankLog log_;
  FaultReport fault_{2, {}, {ExitCode::fault, "has died", "because", "this"}, 1};
};

TEST_F(FaultReporterTest, NamesTheRankItsPlaceAndItsWork) {
  EXPECT_EQ(told("7"),
            "maniple: error: rank 2 on nid2 has died (last seen in step 812, layer 3)\n"
            "  why: because\n  try: this\n  where: noticed by rank 1 on nid1\n"
            "  requests in its step: 5, 1, 7, 8, 9, 10, 11, 12 and 1 more\n"
            "  to leave that node out: sbatch --exclude=nid2 ...\n");
  auto record = nlohmann::json::parse(read_optional_file(folder_ / "fault.json").value());
  EXPECT_GT(record.at("time"), 0);
  record.erase("time");
  EXPECT_EQ(record, nlohmann::json::parse(R"({"rank": 2, "host": "nid2", "gpu": "GPU-2", "phase": "step",
      "step": 812, "layer": 3, "what": "has died", "noticed_by": 1, "requests": [5, 1, 7, 8, 9, 10, 11, 12],
      "from_outside": false, "exit_code": 76, "job": "7"})"));
  EXPECT_EQ(read_status(run_)->state, RunState::fault);
  EXPECT_EQ(read_fault(folder_), "rank 2 on nid2, in phase step, step 812: has died");
}

TEST_F(FaultReporterTest, NamesTheGraphOfACapturedStep) {
  fault_.last_seen.layer = in_graph + 16;
  EXPECT_THAT(told(), ::testing::HasSubstr("(last seen in step 812, a graph for 16 sequences)"));
  const auto record = nlohmann::json::parse(read_optional_file(folder_ / "fault.json").value());
  EXPECT_EQ(record.at("graph"), 16);
  EXPECT_FALSE(record.contains("layer"));
}

TEST_F(FaultReporterTest, ADeathWithTheLauncherOrWithOthersComesFromOutside) {
  const auto from_outside = [&] {
    const auto record = nlohmann::json::parse(read_optional_file(folder_ / "fault.json").value());
    fs::remove(folder_ / "fault.json");
    return record.at("from_outside").get<bool>();
  };
  fault_.from_outside = true;
  told();
  EXPECT_TRUE(from_outside());
  fault_.from_outside = false;
  fault_.death = true;
  told();
  EXPECT_FALSE(from_outside());

  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    if (::fork() == 0) {
      FaultReporter reporter(world_, "", log_);
      reporter.record_in(folder_);
      const pid_t parent = ::getppid();
      std::ignore = ::write(ready[1], "r", 1);
      while (::getppid() == parent) ::usleep(1000);
      reporter.report(fault_);
      ::_exit(0);
    }
    ::pause();
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  for (int wait = 0; wait < 1000 && !fs::exists(folder_ / "fault.json"); ++wait) ::usleep(10'000);
  ::usleep(100'000);  // STATUS follows it
  EXPECT_TRUE(from_outside());
}

TEST_F(FaultReporterTest, RecordsWhatIsNotUtf8) {
  fault_.error = Error(ExitCode::fault, "cannot read dir\xff/model", "because", "this");
  EXPECT_NE(told(), "");
  EXPECT_NE(read_fault(folder_).value().find("/model"), std::string::npos);
}

TEST_F(FaultReporterTest, TheFirstOneWinsAndTheOthersAreSilent) {
  EXPECT_NE(told(), "");
  fault_.rank = 3;
  EXPECT_EQ(told(), "");
  EXPECT_EQ(nlohmann::json::parse(read_optional_file(folder_ / "fault.json").value()).at("rank"), 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "a temporary file is left";
}

TEST_F(FaultReporterTest, ALaterJobAndACompleteRunKeepTheirStatus) {
  fs::create_directories(run_ / "jobs" / "2");
  EXPECT_NE(told(), "");
  EXPECT_EQ(read_status(run_)->state, RunState::running);
  fs::remove_all(run_ / "jobs" / "2");
  fs::remove(folder_ / "fault.json");
  write_status(run_, {RunState::complete, 0});
  EXPECT_NE(told(), "");
  EXPECT_EQ(read_status(run_)->state, RunState::complete);
}

TEST_F(FaultReporterTest, AFaultInTheMidstOfAStopIsNoStopAndOneBehindItIs) {
  write_status(run_, {RunState::stopped});
  EXPECT_NE(told(), "");
  EXPECT_EQ(read_status(run_)->state, RunState::fault);
  fs::remove(folder_ / "fault.json");
  write_status(run_, {RunState::stopped});
  replace_file(folder_ / "record.json", "{}");
  EXPECT_NE(told(), "");
  EXPECT_EQ(read_status(run_)->state, RunState::stopped);
}

TEST_F(FaultReporterTest, WhatCannotBeRecordedIsSaid) {
  fs::remove_all(run_);
  EXPECT_NE(told().find("rank 2 on nid2 has died"), std::string::npos);
  EXPECT_EQ(read_fault(folder_), std::nullopt);
  fs::create_directories(run_);
  write_status(run_, {});
  EXPECT_NE(told().find("rank 2 on nid2 has died"), std::string::npos);
}

TEST_F(FaultReporterTest, IsOnRecordThoughNobodyReadsStderr) {
  fault_.rank = fault_.noticed_by = 1;
  std::array<int, 2> pipe{};
  ::signal(SIGPIPE, SIG_IGN);
  ASSERT_EQ(::pipe2(pipe.data(), O_NONBLOCK), 0);
  while (::write(pipe[1], "full", 4) > 0) {
  }
  ASSERT_EQ(::fcntl(pipe[1], F_SETFL, 0), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(pipe[1], STDERR_FILENO);
  FaultReporter reporter(world_, "", log_);
  reporter.record_in(folder_);
  {
    const std::jthread speaker([&] { reporter.report(fault_); });
    for (int wait = 0; wait < 100 && read_status(run_)->state == RunState::running; ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(read_fault(folder_));
    EXPECT_EQ(read_status(run_)->state, RunState::fault);
    ::close(pipe[0]);  // the writer gets EPIPE
  }
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(pipe[1]);
}

TEST_F(FaultReporterTest, AnErrorOfOneRankSaysWhereItWas) {
  fault_.rank = fault_.noticed_by = 1;
  fault_.last_seen = {};
  EXPECT_EQ(told(),
            "maniple: error: has died\n  why: because\n  try: this\n  where: rank 1 on nid1\n"
            "  when: in phase start, after step 0\n");
}

TEST_F(FaultReporterTest, AnErrorThatAllKnowOfIsSaidByRankZeroAlone) {
  fault_.noticed_by = 0;
  fault_.known_to_all = true;
  EXPECT_EQ(told(), "maniple: error: has died\n  why: because\n  try: this\n");
}

TEST(RankLog, KeepsWholeLinesWithTheirTimeFromBeforeItWasOpened) {
  const fs::path file = fs::temp_directory_path() / fmt::format("maniple-log-{}", ::getpid());
  std::ignore = fs::remove(file);
  for (const char* line : {"first", "second"}) {
    RankLog log;
    log.write(line);
    log.open(file);
    log.write("then");
  }
  std::string lines = read_optional_file(file).value();
  std::ranges::replace_if(
      lines, [](char c) { return '0' <= c && c <= '9'; }, '0');
  const std::string time = "0000-00-00T00:00:00.000 ";
  EXPECT_EQ(lines, time + "first\n" + time + "then\n" + time + "second\n" + time + "then\n");
  fs::remove(file);
}

}  // namespace
}  // namespace maniple
