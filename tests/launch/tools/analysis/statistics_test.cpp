#include <launch/tools/analysis/statistics.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace maniple {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::vector<double> from_one_to(int n) {
  std::vector<double> values(static_cast<size_t>(n));
  std::iota(values.rbegin(), values.rend(), 1);  // largest first: the order does not matter
  return values;
}

TEST(Quantiles, AreThoseOfR) {
  // R: quantile(c(1, 2, 4, 8, 16), c(0, .1, .5, .9, .99, 1))
  const std::vector<double> values = {16, 8, 4, 2, 1};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.1), 1.4);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 4);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 12.8);
  EXPECT_DOUBLE_EQ(quantile(values, 0.99), 15.68);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 16);
}

TEST(Quantiles, LeaveOutWhatWasNotMeasured) {
  EXPECT_DOUBLE_EQ(quantile({none, 3, none, 1}, 0.5), 2);
  EXPECT_TRUE(std::isnan(quantile({none}, 0.5)));
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

TEST(Quantiles, OfWeightedValuesAreThoseOfRepeatedOnes) {
  const std::vector<double> values = {5, none, 1, 2}, weights = {2, 7, 1, 4};
  const std::vector<double> repeated = {1, 2, 2, 2, 2, 5, 5};
  for (const double p : {0.0, 0.1, 0.5, 0.7, 0.75, 0.99, 1.0})
    EXPECT_DOUBLE_EQ(quantile(values, weights, p), quantile(repeated, p)) << p;
  EXPECT_TRUE(std::isnan(quantile({}, {}, 0.5)));
}

// The ranks of the binomial table for p = 0.5 (Conover's A3); they cover 96.9 % for n = 6, 97.9 % for 10, 95.9 % for 20.
TEST(TheIntervalOfAMedian, IsThatOfPublishedTables) {
  struct Row {
    int n, low, high;
  };
  for (const Row& row : {Row{6, 1, 6},
                         {8, 1, 8},
                         {9, 2, 8},
                         {10, 2, 9},
                         {15, 4, 12},
                         {20, 6, 15},
                         {25, 8, 18},
                         {50, 18, 33},
                         {100, 40, 61}}) {
    const Interval interval = median_interval(from_one_to(row.n));
    EXPECT_DOUBLE_EQ(interval.median, (row.n + 1) / 2.0);
    EXPECT_DOUBLE_EQ(interval.low, row.low) << row.n;
    EXPECT_DOUBLE_EQ(interval.high, row.high) << row.n;
  }
}

TEST(TheIntervalOfAMedian, NeedsSixValues) {
  const Interval of_five = median_interval({5, 4, 3, 2, 1, none});
  EXPECT_DOUBLE_EQ(of_five.median, 3);
  EXPECT_TRUE(std::isnan(of_five.low) && std::isnan(of_five.high));
}

TEST(TheIntervalOfARatio, IsExactForValuesWithoutSpread) {
  const Interval interval = ratio_interval({4, 4, 4}, {5, 5, 5, 5});
  EXPECT_DOUBLE_EQ(interval.median, 1.25);
  EXPECT_DOUBLE_EQ(interval.low, 1.25);
  EXPECT_DOUBLE_EQ(interval.high, 1.25);
}

TEST(TheIntervalOfARatio, HoldsTheRatioOfTheMediansAndIsTheSameEachTime) {
  const std::vector<double> a = {250.3, 247.9, 252.0, 249.5, 251.1, 250.9};
  const std::vector<double> b = {261.7, 259.4, 263.5, 260.8, 262.2, 262.0};
  const Interval interval = ratio_interval(a, b);
  EXPECT_DOUBLE_EQ(interval.median, quantile(b, 0.5) / quantile(a, 0.5));
  EXPECT_GT(interval.low, 259.4 / 252.0);
  EXPECT_LT(interval.low, interval.median);
  EXPECT_GT(interval.high, interval.median);
  EXPECT_LT(interval.high, 263.5 / 247.9);
  const Interval again = ratio_interval(a, b);
  EXPECT_EQ(interval.low, again.low);
  EXPECT_EQ(interval.high, again.high);
}

// Two values a side: a resample's median is that of 1, 1 (1 in 4), 1, 3 (2 in 4) or 3, 3 (1 in 4), so the extreme ratios
// have 1 in 16 and the interval ends there.
TEST(TheIntervalOfARatio, CanBeCountedByHandForTwoValues) {
  const Interval interval = ratio_interval({1, 3}, {2, 6});
  EXPECT_DOUBLE_EQ(interval.median, 2);
  EXPECT_DOUBLE_EQ(interval.low, 2.0 / 3);
  EXPECT_DOUBLE_EQ(interval.high, 6);
}

TEST(TheIntervalOfARatio, NeedsMoreThanOneValueOfEachSide) {
  const Interval interval = ratio_interval({2}, {3, 3, 3});
  EXPECT_DOUBLE_EQ(interval.median, 1.5);
  EXPECT_TRUE(std::isnan(interval.low) && std::isnan(interval.high));
}

// Quinn, Parallel Programming in C with MPI and OpenMP, 7.5: two programs of the same speed-up on 8 processors. The book's
// speed-ups have two decimals.
TEST(TheSerialFraction, IsThatOfPublishedTables) {
  const std::vector<double> serial_part = {1.82, 2.50, 3.08, 3.57, 4.00, 4.38, 4.71};
  const std::vector<double> overhead = {1.87, 2.61, 3.23, 3.73, 4.14, 4.46, 4.71};
  for (size_t i = 0; i < serial_part.size(); ++i) {
    EXPECT_NEAR(karp_flatt(serial_part[i], static_cast<double>(i + 2)), 0.1, 0.0015);
    EXPECT_NEAR(karp_flatt(overhead[i], static_cast<double>(i + 2)), 0.07 + 0.005 * static_cast<double>(i),
                0.0015);
  }
  EXPECT_TRUE(std::isnan(karp_flatt(1, 1)));
}

TEST(TheSerialFraction, IsFoundInExactDataOfAmdahlsLaw) {
  constexpr double fraction = 0.085;
  const std::vector<double> p = {1, 2, 4, 8, 64};
  std::vector<double> speedup;
  for (const double n : p) speedup.push_back(1 / (fraction + (1 - fraction) / n));
  EXPECT_NEAR(amdahl_serial_fraction(p, speedup), fraction, 1e-12);
  for (size_t i = 1; i < p.size(); ++i) EXPECT_NEAR(karp_flatt(speedup[i], p[i]), fraction, 1e-12);
  EXPECT_TRUE(std::isnan(amdahl_serial_fraction({1}, {1})));
}

}  // namespace
}  // namespace maniple
