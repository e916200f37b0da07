#include <gtest/gtest.h>
#include <launch/process/signals.hpp>

#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>

namespace maniple {
namespace {

// Each in a process of its own, because signals and the flag belong to the process.
void expect_exit(int code, void (*body)()) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(code), "");
}

void exit_with_flag() { std::_Exit(InterruptScope::flag()); }

TEST(SignalsDeathTest, OtherRanksIgnoreAllThatStops) {
  expect_exit(0, [] {
    prepare_for_stops(1);
    for (const int number : {SIGUSR1, SIGTERM, SIGTERM, SIGINT, SIGINT}) ::raise(number);
    exit_with_flag();
  });
}

TEST(SignalsDeathTest, RankZeroNotesSlurmsWarningAtAnyTimeAndAnyNumberOfThem) {
  expect_exit(SIGUSR1, [] {
    prepare_for_stops(0);
    ::raise(SIGUSR1);
    ::raise(SIGUSR1);
    exit_with_flag();
  });
}

TEST(SignalsDeathTest, BeforeRequestsRunSigtermEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        prepare_for_stops(0);
        ::raise(SIGTERM);
        exit_with_flag();
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalsDeathTest, OtherThreadsMaySpeakBeforeSigtermEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        prepare_for_stops(0);
        const std::jthread speaker([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          std::fputs("rank 2 has died", stderr);
        });
        ::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "rank 2 has died");
}

// The result of a SIGTERM, with or without a recorded fault.
std::string status_after_sigterm(const std::filesystem::path& folder, bool fault,
                                 ExitCode code = ExitCode::stopped) {
  std::filesystem::create_directory(folder);
  for (const char* name : {"word", "status", "fault"})
    if (fault || name != std::string("fault")) std::ofstream(folder / name) << name;
  const auto loading = [&] {
    prepare_for_stops(0);
    std::atomic<Phase> phase = Phase::load;
    const StoppedMarker word(folder / "word", folder / "status", folder / "fault", phase, code);
    ::raise(SIGTERM);
  };
  if (fault)
    EXPECT_EXIT(loading(), ::testing::KilledBySignal(SIGTERM), "");
  else
    EXPECT_EXIT(loading(), ::testing::ExitedWithCode(static_cast<int>(code)), "");
  std::ostringstream text;
  text << std::ifstream(folder / "status").rdbuf();
  std::filesystem::remove_all(folder);
  return text.str();
}

TEST(SignalsDeathTest, WhereNothingIsInFlightSigtermLeavesTheWordOfAStopUnlessThereWasAFault) {
  ::testing::FLAGS_gtest_death_test_style = "fast";
  const std::filesystem::path folder = ::testing::TempDir() + fmt::format("maniple-word-{}", ::getpid());
  EXPECT_EQ(status_after_sigterm(folder, false), "word");
  EXPECT_EQ(status_after_sigterm(folder, true), "status");
  EXPECT_EQ(status_after_sigterm(folder, false, ExitCode::complete), "word")
      << "an exit code that was asked for";
}

TEST(SignalsDeathTest, WhileRequestsRunSigtermLeavesTheWordBeforeAnythingElse) {
  ::testing::FLAGS_gtest_death_test_style = "fast";
  const std::filesystem::path folder = ::testing::TempDir() + fmt::format("maniple-run-{}", ::getpid());
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "word") << "word";
  const auto serving = [&] {
    prepare_for_stops(0);
    std::atomic<Phase> phase = Phase::step;
    const StoppedMarker word(folder / "word", folder / "status", folder / "fault", phase, ExitCode::stopped);
    const InterruptScope scope;
    ::raise(SIGTERM);
    std::_Exit(InterruptScope::flag() == SIGTERM && std::filesystem::exists(folder / "status") ? 0 : 1);
  };
  EXPECT_EXIT(serving(), ::testing::ExitedWithCode(0), "");
  std::filesystem::remove_all(folder);
}

void write_without_a_reader() {
  std::array<int, 2> ends{};
  std::ignore = ::pipe(ends.data());
  ::close(ends[0]);
  std::ignore = ::write(ends[1], "x", 1);
}

TEST(SignalsDeathTest, AReaderThatLeavesEndsACommandThatHasNothingToTidyUp) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  expect_exit(0, [] {
    protect_standard_streams();
    write_without_a_reader();
    std::_Exit(0);
  });
  const auto command = [] {
    protect_standard_streams();
    end_on_closed_pipe();
    write_without_a_reader();
  };
  EXPECT_EXIT(command(), ::testing::KilledBySignal(SIGPIPE), "");
}

TEST(SignalsDeathTest, EveryRankKnowsSinceWhenItIsToEnd) {
  expect_exit(0, [] {
    prepare_for_stops(1);
    const auto send_and_wait = [] {
      ::kill(::getpid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    };
    bool right = !sigterm_is_older_than(std::chrono::milliseconds(0));
    send_and_wait();
    right &= !sigterm_is_older_than(std::chrono::milliseconds(10'000));
    send_and_wait();
    right &= sigterm_is_older_than(std::chrono::milliseconds(250));
    std::_Exit(right ? 0 : 1);
  });
}

TEST(SignalsDeathTest, AfterAWarningOneSigtermIsNotASecondOrder) {
  expect_exit(SIGTERM, [] {
    prepare_for_stops(0);
    const InterruptScope scope;
    ::raise(SIGUSR1);
    InterruptScope::stop_by_clock();
    ::raise(SIGTERM);
    ::raise(SIGUSR1);
    exit_with_flag();
  });
}

TEST(SignalsDeathTest, ASecondOrderEndsTheProcess) {
  expect_exit(130, [] {
    prepare_for_stops(0);
    const InterruptScope scope;
    ::raise(SIGTERM);
    ::raise(SIGINT);
    exit_with_flag();
  });
}

TEST(SignalsDeathTest, TheCauseIsNamed) {
  expect_exit(0, [] {
    prepare_for_stops(0);
    InterruptScope::stop_by_clock();
    const bool clock =
        InterruptScope::cause() == "the clock" && InterruptScope::interrupted_code() == ExitCode::terminated;
    const InterruptScope scope;
    ::raise(SIGINT);
    const bool order =
        InterruptScope::cause() == "SIGINT" && InterruptScope::interrupted_code() == ExitCode::interrupted;
    std::_Exit(clock && order ? 0 : 1);
  });
}

}  // namespace
}  // namespace maniple
