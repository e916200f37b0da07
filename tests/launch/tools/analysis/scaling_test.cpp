#include <launch/tools/analysis/scaling_text.hpp>
#include <support/made_studies.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maniple {
namespace {

using testing::HasSubstr;

Study study_of(ScalingMode mode, std::vector<StudyPoint> points, int rounds) {
  Study study;
  study.mode = mode;
  study.points = std::move(points);
  study.rounds = rounds;
  study.model_hash = "aaaa";
  study.workload = {{"lengths", "fixed:16/16"}};
  return study;
}

// rates: of each point, by round; 0: no record.
ScalingResult result_of(const Study& study, const std::vector<std::vector<double>>& rates) {
  std::vector<StudyLaunch> launches;
  for (int round = 1; round <= study.rounds; ++round)
    for (size_t i = 0; i < study.points.size(); ++i) {
      const double rate = rates[i][static_cast<size_t>(round - 1)];
      launches.push_back({study.points[i], round, "f", {}, {}});
      if (rate > 0) launches.back().record = made_launch(study, study.points[i], rate);
    }
  return scaling_of(study, std::move(launches));
}

// A serial fraction of 0.1 gives S = 1 / (0.1 + 0.9 / p): 1, 1.818..., 3.0769...; the rates are exact.
TEST(Scaling, StrongScalingOfAmdahlsLaw) {
  const ScalingResult result =
      result_of(study_of(ScalingMode::strong, {{1, 1}, {1, 2}, {1, 4}}, 1), {{11}, {20}, {11 / 0.325}});
  EXPECT_DOUBLE_EQ(result.rows[1].speed_up, 20.0 / 11);
  EXPECT_DOUBLE_EQ(result.rows[1].efficiency, 10.0 / 11);
  EXPECT_NEAR(result.rows[1].karp_flatt, 0.1, 1e-12);
  EXPECT_NEAR(result.rows[2].karp_flatt, 0.1, 1e-12);
  EXPECT_NEAR(result.serial_fraction, 0.1, 1e-12);
  EXPECT_TRUE(std::isnan(result.rows[0].karp_flatt));
  EXPECT_EQ(result.rows[2].nodes, 2);
  const std::string text = scaling_text(result);
  EXPECT_THAT(
      text,
      HasSubstr(
          "      2     1   1   1   2  20.00                          1.82  0.909       0.100  VALID\n"));
  EXPECT_THAT(text, HasSubstr("# Amdahl fit: serial fraction 0.100, at most 10.0x; over dp only: two axes "
                              "are never on one line\n"));
}

// The smallest point has two ranks: p counts from there.
TEST(Scaling, TheSmallestPointIsTheReference) {
  const ScalingResult result = result_of(study_of(ScalingMode::strong, {{2, 1}, {4, 1}}, 1), {{10}, {15}});
  EXPECT_DOUBLE_EQ(result.rows[1].speed_up, 1.5);
  EXPECT_DOUBLE_EQ(result.rows[1].efficiency, 0.75);
  EXPECT_NEAR(result.rows[1].karp_flatt, 1.0 / 3, 1e-12);
  EXPECT_THAT(scaling_text(result),
              HasSubstr("# strong scaling over tp (dp 1), reference 2 ranks, 1 launch a point"));
}

TEST(Scaling, WeakScalingHasNoSerialFraction) {
  const ScalingResult result = result_of(study_of(ScalingMode::weak, {{1, 1}, {1, 4}}, 1), {{10}, {36}});
  EXPECT_DOUBLE_EQ(result.rows[1].efficiency, 0.9);
  EXPECT_TRUE(std::isnan(result.rows[1].karp_flatt));
  EXPECT_TRUE(std::isnan(result.serial_fraction));
  EXPECT_THAT(scaling_text(result), testing::Not(HasSubstr("Amdahl")));
}

TEST(Scaling, LaunchesAreTheUnit) {
  const std::vector<double> six = {100, 101, 102, 103, 104, 105};
  const ScalingResult of_six = result_of(study_of(ScalingMode::strong, {{1, 1}}, 6), {six});
  EXPECT_DOUBLE_EQ(of_six.rows[0].rate.median, 102.5);
  EXPECT_DOUBLE_EQ(of_six.rows[0].rate.low, 100);
  EXPECT_DOUBLE_EQ(of_six.rows[0].rate.high, 105);
  const ScalingResult of_three = result_of(study_of(ScalingMode::strong, {{1, 1}}, 3), {{100, 90, 120}});
  EXPECT_DOUBLE_EQ(of_three.rows[0].rate.median, 100);
  EXPECT_TRUE(std::isnan(of_three.rows[0].rate.low));
  EXPECT_EQ(of_three.rows[0].verdict, "NOISY");  // 15 % around the median
  EXPECT_EQ(of_six.rows[0].verdict, "VALID");
}

TEST(Scaling, SaysWhatIsMissing) {
  ScalingResult result = result_of(study_of(ScalingMode::strong, {{1, 1}, {1, 2}}, 2), {{10, 10}, {0, 0}});
  result.missing[1].attempts = {"1", "137"};
  const std::string text = scaling_text(result);
  EXPECT_THAT(text, HasSubstr("      2     -   1   1   2  -                                 -      -         "
                              "  -  0 of 2 rounds\n"));
  EXPECT_THAT(text, HasSubstr("# missing: tp 1, dp 2, round 1\n"));
  EXPECT_THAT(text, HasSubstr("# failed 2 times (exit codes 1, 137), and skipped: f\n"));
}

TEST(Scaling, SaysWhereLaunchesDiffer) {
  const Study study = study_of(ScalingMode::strong, {{1, 1}, {1, 2}}, 1);
  std::vector<StudyLaunch> launches;
  for (const StudyPoint& point : study.points)
    launches.push_back({point, 1, "f", made_launch(study, point, 10), {}});
  launches[1].record->texts["git_commit"] = "other";
  launches[1].record->texts["verdict"] = "INVALID";
  launches[1].record->texts["verdict_reason"] = "4.0 s, 10.0 s wanted";
  const ScalingResult result = scaling_of(study, launches);
  EXPECT_THAT(scaling_text(result), HasSubstr("# launches of different versions: 1a2b3c4, other\n"));
  EXPECT_THAT(scaling_text(result), HasSubstr("  INVALID (4.0 s, 10.0 s wanted)\n"));
}

}  // namespace
}  // namespace maniple
