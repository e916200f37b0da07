#include <launch/process/stop_clock.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>

namespace maniple {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using TimePoint = WallClock::time_point;

TimePoint second(int64_t since_epoch) { return WallClock::from_time_t(since_epoch); }

// A variable of the environment, for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
    ::tzset();
  }
  ~Variable() {
    if (old_)
      ::setenv(name_, old_->c_str(), 1);
    else
      ::unsetenv(name_);
    ::tzset();
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(SqueueTime, IsLocalTimeInSummerAndInWinter) {
  const Variable zone("TZ", "CET-1CEST,M3.5.0,M10.5.0/3");
  const TimePoint now = second(1'750'000'000);
  EXPECT_EQ(parse_squeue_time("2025-07-01T12:00:00\n", now), second(1'751'364'000));  // 10:00 UTC
  EXPECT_EQ(parse_squeue_time("2026-01-01T12:00:00", now), second(1'767'265'200));    // 11:00 UTC
}

TEST(SqueueTime, OtherTextAndTheEndOfAJobWithoutALimitAreNothing) {
  const TimePoint now = second(1'750'000'000);
  for (const char* text : {"", "\n", "NONE", "N/A", "Unknown", "2025-07-01", "2025-07-01T12:00:00Z",
                           "slurm_load_jobs error: Invalid job id specified"})
    EXPECT_EQ(parse_squeue_time(text, now), std::nullopt) << text;
  EXPECT_EQ(parse_squeue_time("2026-06-15T15:06:40", now), std::nullopt);
}

TEST(PresumedEnd, IsSlurmsVariableThenWalltimeThenUnknown) {
  TimeLimit limit;
  EXPECT_EQ(presumed_end(limit), std::nullopt);
  limit.walltime = 4h;
  EXPECT_EQ(presumed_end(limit), limit.start + 4h);
  limit.slurm_end = limit.start + 1h;
  EXPECT_EQ(presumed_end(limit), limit.start + 1h);
}

TEST(TimeToStop, IsAsLongBeforeTheEndAsAskedFor) {
  TimeLimit limit;
  const TimePoint end = limit.start + 1h;
  EXPECT_EQ(time_to_stop(limit, end), end - 180s);
  limit.stop_before = 59min;
  EXPECT_EQ(time_to_stop(limit, end), end - 59min);
}

TEST(TimeToStop, OfAShortJobIsHalfOfItsTimeUnlessAskedFor) {
  TimeLimit limit;
  EXPECT_EQ(time_to_stop(limit, limit.start + 60s), limit.start + 30s);
  limit.stop_before = 180s;
  EXPECT_EQ(time_to_stop(limit, limit.start + 60s), limit.start - 120s);
}

// A folder in front of PATH with a squeue of our own; it appends its arguments to a file.
class FakeSqueue {
 public:
  explicit FakeSqueue(const std::string& body)
      : folder_(fs::temp_directory_path() / ("squeue." + std::to_string(::getpid()))),
        path_("PATH", folder_.string() + ":" + std::getenv("PATH")) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "squeue") << "#!/bin/sh\necho \"$@\" >>\"${0%/*}/calls\"\n" << body << '\n';
    fs::permissions(folder_ / "squeue", fs::perms::owner_all);
  }
  ~FakeSqueue() { fs::remove_all(folder_); }

  std::string calls() const {
    std::ostringstream text;
    text << std::ifstream(folder_ / "calls").rdbuf();
    return text.str();
  }
  // What `cat "${0%/*}/answer"` prints.
  void answer(TimePoint end) const {
    std::ofstream(folder_ / "next") << local_time(end);
    fs::rename(folder_ / "next", folder_ / "answer");
  }
  static std::string local_time(TimePoint time) {
    const std::time_t seconds = WallClock::to_time_t(time);
    std::array<char, 32> text{};
    std::tm local{};
    ::localtime_r(&seconds, &local);  // localtime would read the time zone anew beside the clock's thread
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &local);
    return text.data();
  }

 private:
  fs::path folder_;
  Variable path_;
};

constexpr const char* answers = R"(cat "${0%/*}/answer")";

// Whether the clock stopped within the patience, and for which end.
std::optional<TimePoint> stop_of(const TimeLimit& limit, std::chrono::milliseconds patience,
                                 std::chrono::milliseconds interval = 5min) {
  std::promise<TimePoint> stopped;
  const StopClock clock(
      limit, [&](TimePoint end) { stopped.set_value(end); }, interval);
  std::future<TimePoint> end = stopped.get_future();
  return end.wait_for(patience) == std::future_status::ready ? std::optional(end.get()) : std::nullopt;
}

TimeLimit in_job(const std::string& job) {
  TimeLimit limit;
  limit.slurm_job = job;
  return limit;
}

TEST(StopClock, AsksSqueueForTheJobAndBelievesItFirst) {
  const FakeSqueue squeue(answers);
  const TimePoint end = std::chrono::time_point_cast<std::chrono::seconds>(WallClock::now()) + 600s;
  squeue.answer(end);
  TimeLimit limit = in_job("12_3");
  limit.slurm_end = limit.start + 5h;
  limit.walltime = 5h;
  limit.stop_before = 600s;
  EXPECT_EQ(stop_of(limit, 5s), end);
  EXPECT_EQ(squeue.calls(), "-h -j 12_3 -o %e\n");
}

TEST(StopClock, LeavesTimeToAJobThatHasIt) {
  const FakeSqueue squeue(answers);
  squeue.answer(WallClock::now() + 1h);
  EXPECT_EQ(stop_of(in_job("1"), 500ms), std::nullopt);
}

TEST(StopClock, AsksAgainAndFollowsALimitThatWasChanged) {
  const FakeSqueue squeue(answers);
  squeue.answer(WallClock::now() + 1h);
  std::promise<TimePoint> stopped;
  const StopClock clock(
      in_job("1"), [&](TimePoint end) { stopped.set_value(end); }, 50ms);
  std::future<TimePoint> end = stopped.get_future();
  EXPECT_EQ(end.wait_for(300ms), std::future_status::timeout);
  squeue.answer(WallClock::now() - 1s);
  EXPECT_EQ(end.wait_for(5s), std::future_status::ready);
}

TEST(StopClock, AnAnswerThatDoesNotComeLeavesTheLastOneStanding) {
  TimeLimit limit = in_job("1");
  limit.walltime = 5h;
  const FakeSqueue squeue(
      R"(if [ -e "${0%/*}/answer" ]; then cat "${0%/*}/answer"; rm "${0%/*}/answer"; fi)");
  squeue.answer(WallClock::now() + 2s);
  limit.stop_before = 0s;
  EXPECT_TRUE(stop_of(limit, 8s, 50ms).has_value());
}

TEST(StopClock, WithoutAnAnswerTheOtherSourcesCount) {
  for (const char* body : {"exit 1", "echo NONE", "echo 2199-01-01T00:00:00", "echo; exit 0"}) {
    const FakeSqueue squeue(body);
    TimeLimit limit = in_job("1");
    limit.walltime = 200ms;
    limit.stop_before = 0s;
    EXPECT_EQ(stop_of(limit, 5s), limit.start + 200ms) << body;
  }
}

TEST(StopClock, ASqueueThatHangsHoldsNobodyUp) {
  const FakeSqueue squeue("sleep 1000");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(stop_of(in_job("1"), 300ms), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
}

TEST(StopClock, TellsTheEndThatItKnows) {
  TimeLimit limit;
  limit.walltime = 5h;
  EXPECT_EQ(StopClock(limit, [](TimePoint) {}).end(), limit.start + 5h);
  EXPECT_EQ(StopClock({}, [](TimePoint) {}).end(), std::nullopt);
}

TEST(StopClock, WithoutABatchSystemItNeverStops) { EXPECT_EQ(stop_of({}, 200ms), std::nullopt); }

}  // namespace
}  // namespace maniple
