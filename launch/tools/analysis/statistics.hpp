// What a few repetitions say. Values that are NaN were not measured, and are left out everywhere.
#pragma once

#include <kernels/support/quantile.hpp>

#include <limits>
#include <vector>

namespace maniple {

inline constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

// low, high: of 95 %; NaN where there are too few values for one.
struct Interval {
  double median, low, high;
};

double mean(const std::vector<double>& values);  // NaN for no values

// quantile() where each value stands for `weights` equal ones.
double quantile(const std::vector<double>& values, const std::vector<double>& weights, double p);

// By order statistics, which assumes nothing but independent values: the narrowest symmetric pair of them that covers the
// median with 95 % or more (Conover, Practical Nonparametric Statistics, 3.2). Of 6 values smallest to largest (96.9 %);
// fewer have none.
Interval median_interval(std::vector<double> values);

// The median of b over that of a, with the percentile bootstrap of this ratio (Efron and Tibshirani 1993, 13.3): 10,000
// resamples of each side, always the same ones. No interval where a side has a single value.
Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b);

// The part of the work that does not become faster with p processors, as a speed-up shows it (Karp and Flatt 1990). NaN for
// p = 1. It grows with p where communication does.
double karp_flatt(double speedup, double p);

// f of Amdahl's law 1 / S = f + (1 - f) / p, by least squares over all points; 1 / f is the largest speed-up. NaN without a
// point of p > 1.
double amdahl_serial_fraction(const std::vector<double>& p, const std::vector<double>& speedup);

}  // namespace maniple
