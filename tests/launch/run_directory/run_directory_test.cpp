#include "run_directory_testing.hpp"

#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>

namespace maniple {
namespace {

using testing::content_of;
using testing::Scratch;
using testing::write_content;
using namespace std::chrono_literals;
using Kind = JournalRecord::Kind;

RunDirectory::Options settings_of(const std::filesystem::path& path, uint64_t requests) {
  RunDirectory::Options settings;
  settings.path = path;
  settings.manifest = testing::manifest_of(requests);
  settings.me = this_process("here", "");
  settings.lock = {50ms, 0ms};  // a job that was "killed" in this process counts as gone at once
  settings.sync_interval = 0ms;
  return settings;
}

// A SIGTERM after the last STATUS must not replace it.
TEST(RunDirectory, AnEndByItselfTakesBackTheWordOfAStop) {
  const Scratch scratch;
  RunDirectory run(settings_of(scratch.path(), 1));
  const auto word = run.job_folder() / stopped_marker_name;
  write_content(word, "stopped 75\n");
  run.record({Kind::finished, 0, "zero"});
  run.finish({RunState::complete, 0}, "{}");
  EXPECT_EQ(content_of(scratch.path() / "STATUS"), "complete 0\n");
  EXPECT_FALSE(std::filesystem::exists(word));
}

TEST(RunDirectory, WritesResultsAndErrorsInTheOrderOfTheInput) {
  const Scratch scratch;
  const auto path = scratch.path() / "deep" / "run";
  RunDirectory run(settings_of(path, 4));
  EXPECT_EQ(content_of(path / "STATUS"), "running 75\n");
  run.record({Kind::finished, 3, "three"});
  run.record({Kind::failed, 1, "one"});
  run.record({Kind::finished, 0, "zero"});
  run.tick({});
  EXPECT_EQ(read_progress(path)->done, 3U);
  EXPECT_FALSE(std::filesystem::exists(path / "results.jsonl"));
  run.record({Kind::finished, 2, "two"});
  run.finish({RunState::complete, 1}, "{}");
  EXPECT_EQ(content_of(path / "results.jsonl"), "zero\ntwo\nthree\n");
  EXPECT_EQ(content_of(path / "errors.jsonl"), "one\n");
  EXPECT_EQ(content_of(path / "STATUS"), "complete 1\n");
  EXPECT_EQ(read_progress(path)->failed, 1U);
}

TEST(RunDirectory, TheErrorsFileGoesWhenTheErrorsHaveGone) {
  const Scratch scratch;
  {
    RunDirectory run(settings_of(scratch.path(), 1));
    run.record({Kind::failed, 0, "bad"});
    run.finish({RunState::complete, 1}, "{}");
  }
  EXPECT_EQ(content_of(scratch.path() / "results.jsonl"), "");
  RunDirectory again(settings_of(scratch.path(), 1));
  EXPECT_EQ(read_status(scratch.path())->state, RunState::running);
  again.record({Kind::finished, 0, "good"});
  again.finish({RunState::complete, 0}, "{}");
  EXPECT_EQ(content_of(scratch.path() / "results.jsonl"), "good\n");
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "errors.jsonl"));
}

TEST(RunDirectory, OfAnotherRunIsRefusedAndLeftAsItWas) {
  const Scratch scratch;
  RunDirectory(settings_of(scratch.path(), 4)).finish({RunState::stopped, 75}, "{}");
  EXPECT_THROW(RunDirectory(settings_of(scratch.path(), 5)), Error);
  EXPECT_EQ(content_of(scratch.path() / "STATUS"), "stopped 75\n");
  const RunDirectory again(settings_of(scratch.path(), 4));  // and the lock is free
}

TEST(RunDirectory, WhatRefusesTheStartIsToldThoughTheRefusalCannotBeRecorded) {
  const Scratch scratch;
  const auto manifest = scratch.path() / "manifest.json";
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  const std::jthread other([&] {
    std::ofstream pipe(manifest);  // opened when the job, with a folder of its own, reads it
    std::filesystem::create_directory(scratch.path() / "jobs" / "1" / job_record_name);
    pipe << "[]";
  });
  try {
    RunDirectory(settings_of(scratch.path(), 4));
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input) << error.what();
  }
}

TEST(RunDirectory, AStartThatBeganNoRequestBindsNothing) {
  const Scratch scratch;
  RunDirectory(settings_of(scratch.path(), 4)).finish({RunState::fault, 65}, "null");
  EXPECT_FALSE(binding_manifest(scratch.path()));
  RunDirectory other(settings_of(scratch.path(), 5));
  EXPECT_TRUE(binding_manifest(scratch.path()));  // it may be at work
  other.record({Kind::started, 0});
  other.finish({RunState::fault, 76}, "null");
  EXPECT_EQ(binding_manifest(scratch.path())->number("requests"), 5);
  EXPECT_THROW(RunDirectory(settings_of(scratch.path(), 4)), Error);
}

TEST(RunDirectory, AJobThatWasTakenOverStopsAndHarmsNothing) {
  const Scratch scratch;
  RunDirectory zombie(settings_of(scratch.path(), 2));
  zombie.record({Kind::finished, 0, "zero"});
  zombie.tick({});
  RunDirectory owner(settings_of(scratch.path(), 2));
  EXPECT_TRUE(owner.ledger().has_result(0));
  zombie.record({Kind::finished, 1, "one"});
  EXPECT_THROW(zombie.tick({}), Error);
  EXPECT_THROW(zombie.finish({RunState::complete, 0}, "{}"), Error);
  EXPECT_FALSE(owner.ledger().has_result(1));
  owner.record({Kind::finished, 1, "one"});
  owner.finish({RunState::complete, 0}, "{}");
  EXPECT_EQ(content_of(scratch.path() / "results.jsonl"), "zero\none\n");
}

TEST(RunDirectory, ARequestThatIsNotOfTheRunNeverReachesTheDisk) {
  const Scratch scratch;
  RunDirectory run(settings_of(scratch.path(), 2));
  EXPECT_THROW(run.record({Kind::started, 2}), Error);
  run.tick({});
  EXPECT_TRUE(testing::records_of(run.job_folder() / "journal").empty());
}

TEST(RunDirectory, ProgressCountsNothingThatTheDiskDidNotTake) {
  const Scratch scratch;
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  RunDirectory run(settings_of(scratch.path(), 2));
  run.record({Kind::finished, 0, "zero"});
  run.tick({});
  run.record({Kind::finished, 1, std::string(100'000, 'x')});
  const rlimit small{50'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(run.tick({}), Error);
  run.finish({RunState::fault, 76}, "{}");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::ignore = std::signal(SIGXFSZ, old);
  EXPECT_EQ(read_progress(scratch.path())->done, 1U);
  EXPECT_EQ(content_of(scratch.path() / "STATUS"), "fault 76\n");
}

TEST(RunDirectory, FilesThatACrashLeftUnfinishedAreRemoved) {
  const Scratch scratch;
  write_content(scratch.path() / "results.jsonl.n1-7.unfinished", "half");
  const RunDirectory run(settings_of(scratch.path(), 1));
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "results.jsonl.n1-7.unfinished"));
}

TEST(RunDirectory, TellsWhenItWaitsForTheDiskAndThatItMoves) {
  const Scratch scratch;
  constexpr uint64_t requests = 5000, moves = requests / 1024;
  std::atomic<uint32_t> disk = 0;
  RunDirectory::Options settings = settings_of(scratch.path(), requests);
  settings.disk = &disk;
  {
    RunDirectory first(settings);
    for (uint64_t request = 0; request < requests; ++request) first.record({Kind::finished, request, "x"});
    first.tick({});
  }
  uint32_t before = disk;
  RunDirectory second(settings);
  EXPECT_GE(disk - before, 2 * moves) << "replaying";
  EXPECT_EQ(disk % 2, 0U);
  before = disk;
  second.finish({RunState::complete, 0}, "{}");
  EXPECT_GE(disk - before, 2 * moves) << "writing";
  EXPECT_EQ(disk % 2, 0U);
}

TEST(RunDirectory, ADiskThatHangsWhileItIsTakenOverIsSeen) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path() / "jobs" / "1");
  const std::filesystem::path journal = scratch.path() / "jobs" / "1" / "journal";
  ASSERT_EQ(::mkfifo(journal.c_str(), 0600), 0);  // opening it waits for a writer
  write_content(scratch.path() / "jobs" / "1" / job_record_name, "{}");
  std::atomic<uint32_t> disk = 0;
  RunDirectory::Options settings = settings_of(scratch.path(), 1);
  settings.disk = &disk;
  const std::jthread taker([&] { const RunDirectory run(settings); });
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(disk % 2, 1U);
  std::ofstream(journal, std::ios::binary).close();
}

TEST(RunDirectory, AStopIsNoFaultUnlessOneIsOnRecord) {
  const Scratch scratch;
  for (const bool fault : {false, true, true}) {
    RunDirectory run(settings_of(scratch.path(), 1));
    EXPECT_FALSE(run.ledger().is_suspect(0));
    run.record({Kind::started, 0});
    run.record({Kind::stopped});
    run.tick({});
    if (fault) write_content(run.job_folder() / "fault.json", "{}");
  }
  EXPECT_TRUE(RunDirectory(settings_of(scratch.path(), 1)).ledger().is_suspect(0));
}

TEST(RunDirectory, OnlyTheFallOfARankInAStepIsAFaultOfItsRequests) {
  struct Ending {
    const char* fault;  // fault.json; null: none
    int ranks;
    bool counts;
  };
  for (const Ending& ending :
       {Ending{R"({"phase":"step"})", 2, true},  // of the version before
        Ending{R"({"phase":"step","from_outside":false})", 2, true},
        Ending{R"({"phase":"step","from_outside":true})", 2, false},
        Ending{R"({"phase":"idle","from_outside":false})", 2, false}, Ending{R"({"pha)", 2, true},
        Ending{R"([{"phase":1}])", 2, true}, Ending{nullptr, 2, false}, Ending{nullptr, 1, true}}) {
    const Scratch scratch;
    for (int job = 0; job < 2; ++job) {
      RunDirectory run(settings_of(scratch.path(), 1));
      run.record({Kind::started, 0});
      run.tick({});
      std::filesystem::create_directory(run.job_folder() / "logs");
      for (int rank = 0; rank < ending.ranks; ++rank)
        write_content(run.job_folder() / "logs" / std::to_string(rank), "");
      if (ending.fault) write_content(run.job_folder() / "fault.json", ending.fault);
    }
    EXPECT_EQ(RunDirectory(settings_of(scratch.path(), 1)).ledger().is_suspect(0), ending.counts)
        << (ending.fault ? ending.fault : "no fault.json") << ", ranks: " << ending.ranks;
  }
}

TEST(RunDirectory, StatusTellsOfAStopBeforeItsEndOnlyWhereItIsCertain) {
  for (const bool certain : {false, true})
    for (const bool fault : {false, true}) {
      const Scratch scratch;
      RunDirectory run(settings_of(scratch.path(), 1));
      if (fault) write_content(run.job_folder() / "fault.json", "{}");
      run.stopping(certain);
      EXPECT_EQ(content_of(scratch.path() / "STATUS"), certain && !fault ? "stopped 75\n" : "running 75\n");
    }
}

// The expected content of a run directory, as maps and sets.
struct Oracle {
  std::map<uint64_t, std::string> results, errors;
  std::map<uint64_t, int> faults;
  std::set<uint64_t> quarantined;
};

// Jobs that end in every way, with truncated journals: the
// records that were kept are there, once, and no others.
TEST(RunDirectory, KeepsWhatTheOracleKeepsOverRandomJobs) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    const Scratch scratch;
    const uint64_t requests = 1 + random() % 30;
    Oracle oracle;
    for (bool complete = false; !complete;) {
      RunDirectory::Options settings = settings_of(scratch.path(), requests);
      settings.sync_interval = 1h;  // what a killed process leaves, not what a killed machine leaves
      std::optional<RunDirectory> run(settings);
      std::vector<uint64_t> open;
      for (uint64_t request = 0; request < requests; ++request) {
        ASSERT_EQ(run->ledger().has_result(request),
                  oracle.results.contains(request) || oracle.errors.contains(request));
        ASSERT_EQ(run->ledger().is_suspect(request), oracle.faults[request] >= 2);
        ASSERT_EQ(run->ledger().is_quarantined(request), oracle.quarantined.contains(request));
        if (!oracle.results.contains(request)) open.push_back(request);
      }
      std::shuffle(open.begin(), open.end(), random);
      std::map<uint64_t, bool> running;
      const size_t ends_after = random() % (2 * open.size() + 1);
      for (size_t i = 0; i < std::min(ends_after, open.size()); ++i) {
        const uint64_t request = open[i];
        const bool alone = random() % 4 == 0;
        run->record({alone ? Kind::started_alone : Kind::started, request});
        running[request] = alone;
        if (random() % 3 == 0) continue;
        running.erase(request);
        const bool fails = random() % 5 == 0;
        const std::string line = "line " + std::to_string(request) + (fails ? " bad" : "");
        run->record({fails ? Kind::failed : Kind::finished, request, line});
        oracle.errors.erase(request);
        (fails ? oracle.errors : oracle.results)[request] = line;
        if (fails) oracle.quarantined.erase(request);
        run->tick({});
      }
      complete = oracle.results.size() + oracle.errors.size() == requests && random() % 2 == 0;
      const bool stops = !complete && random() % 3 == 0;
      if (complete) run->finish({RunState::complete, 0}, "{}");
      if (stops) run->finish({RunState::stopped, 75}, "{}");
      if (!complete && !stops) {
        run->tick({});
        for (const auto& [request, alone] : running) {
          ++oracle.faults[request];
          if (alone) oracle.quarantined.insert(request);
        }
        if (random() % 2 == 0) {  // the end of a record that never was whole
          std::ofstream(run->job_folder() / "journal", std::ios::app) << std::string(1 + random() % 30, 'x');
        }
      }
      run.reset();
    }
    std::string results, errors;
    for (const auto& [request, line] : oracle.results) results += line + '\n';
    for (const auto& [request, line] : oracle.errors) errors += line + '\n';
    EXPECT_EQ(content_of(scratch.path() / "results.jsonl"), results);
    EXPECT_EQ(content_of(scratch.path() / "errors.jsonl"), errors);
  }
}

}  // namespace
}  // namespace maniple
