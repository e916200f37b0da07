#include <launch/process/exit_code.hpp>
#include <runtime/collective_phase.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

TEST(ExitCodeOf, FailedRequestsCountAgainstThePercentage) {
  EXPECT_EQ(exit_code_of(0, 0, 10), ExitCode::complete);
  EXPECT_EQ(exit_code_of(0, 1, 1'000'000), ExitCode::some_requests_failed);
  EXPECT_EQ(exit_code_of(5, 5, 100), ExitCode::complete);
  EXPECT_EQ(exit_code_of(5, 6, 100), ExitCode::some_requests_failed);
  EXPECT_EQ(exit_code_of(100, 100, 100), ExitCode::complete);
}

TEST(ExitCodeOf, OnlyAPlannedStopMayCountAsSuccess) {
  EXPECT_EQ(interrupted_code(/*goes_on=*/true), ExitCode::stopped);
  EXPECT_EQ(shown_code(ExitCode::stopped, true), ExitCode::complete);
  EXPECT_EQ(shown_code(ExitCode::stopped, false), ExitCode::stopped);
  EXPECT_EQ(shown_code(ExitCode::some_requests_failed, true), ExitCode::some_requests_failed);
}

TEST(ExitCodeOf, OnlyARequiredInvalidBenchFails) {
  EXPECT_EQ(bench_code(true, true), ExitCode::some_requests_failed);
  EXPECT_EQ(bench_code(true, false), ExitCode::complete);
  EXPECT_EQ(bench_code(false, true), ExitCode::complete);
}

TEST(ExitCodeOf, OneRankBringsTheCodeOfAFailureThatAllKnowOf) {
  EXPECT_EQ(exit_code_of_rank([] { return ExitCode::stopped; }), 75);
  EXPECT_EQ(
      exit_code_of_rank([]() -> ExitCode { throw SilentExit(Error(ExitCode::input, "of another rank")); }),
      0);
  EXPECT_EQ(exit_code_of_rank([]() -> ExitCode { throw CollectiveError(Error(ExitCode::input, "x")); }), 65);
  EXPECT_THROW(exit_code_of_rank([]() -> ExitCode { throw Error(ExitCode::input, "alone"); }), Error);
}

}  // namespace
}  // namespace maniple
