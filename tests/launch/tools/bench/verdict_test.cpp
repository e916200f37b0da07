#include <launch/tools/bench/verdict.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace maniple {
namespace {

constexpr double no_figure = std::numeric_limits<double>::quiet_NaN();

Evidence evidence_of(std::vector<NamedInterval> results) {
  Evidence evidence;
  evidence.results = std::move(results);
  return evidence;
}

const Evidence good = evidence_of({{"a", {100, 96, 104}}, {"b", {1, 0.96, 1.04}}});

TEST(Verdict, NarrowIntervalsAreValid) {
  const Verdict verdict = judge(good);
  EXPECT_EQ(verdict.quality, Quality::valid);
  EXPECT_EQ(result_line(verdict), "RESULT VALID\n");
}

TEST(Verdict, AWideIntervalIsNoisyAndNamed) {
  const Verdict verdict =
      judge(evidence_of({{"a", {100, 96, 104}}, {"b", {50, 46, 53.1}}, {"c", {1, 0.94, 1.06}}}));
  EXPECT_EQ(result_line(verdict), "RESULT NOISY: half CI 7.1 % > 5 % (b; 2 of 3 results)\n");
}

TEST(Verdict, WithoutAnIntervalNothingIsValid) {
  EXPECT_EQ(result_line(judge(evidence_of({{"a", {100, 96, 104}}, {"b", {1, no_figure, no_figure}}}))),
            "RESULT NOISY: too few repeats for a 95 % interval, 6 wanted\n");
}

TEST(Verdict, WrongValuesAreInvalidHoweverNoisy) {
  Evidence evidence = evidence_of({{"a", {1, 0, 9}}});
  evidence.wrong = 1;
  EXPECT_EQ(result_line(judge(evidence)), "RESULT INVALID: 1 wrong value, 0 wanted\n");
  evidence.wrong = 3;
  EXPECT_EQ(judge(evidence).reason, "3 wrong values, 0 wanted");
}

TEST(Verdict, ADriftOfTheProbeIsInvalidInBothDirections) {
  Evidence evidence = good;
  evidence.probe_drift = 0.05;
  EXPECT_EQ(judge(evidence).quality, Quality::valid);
  for (const double drift : {0.09, -0.09}) {
    evidence.probe_drift = drift;
    EXPECT_EQ(result_line(judge(evidence)), "RESULT INVALID: probe drift 9.0 %, at most 5 % wanted\n");
  }
  evidence.probe_drift = no_figure;
  EXPECT_EQ(judge(evidence).quality, Quality::invalid);
}

TEST(Verdict, TooLittleTimeIsInvalid) {
  Evidence evidence = good;
  evidence.seconds = 4;
  evidence.least_seconds = 10;
  EXPECT_EQ(result_line(judge(evidence)), "RESULT INVALID: 4.0 s, 10.0 s wanted\n");
  evidence.seconds = 10;
  EXPECT_EQ(judge(evidence).quality, Quality::valid);
}

TEST(Verdict, NothingMeasuredIsInvalid) {
  EXPECT_EQ(result_line(judge({})), "RESULT INVALID: nothing was measured\n");
}

}  // namespace
}  // namespace maniple
