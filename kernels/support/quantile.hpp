// The one rule for quantiles, medians among them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace maniple {

// Linear between the two nearest values (type 7 of Hyndman and Fan 1996, R's default). values: in ascending order, none NaN.
// 0 <= p <= 1; NaN for no values.
template <typename T>
double sorted_quantile(const std::vector<T>& values, double p) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double place = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double low = values[below], high = values[std::min(below + 1, values.size() - 1)];
  return low + (place - static_cast<double>(below)) * (high - low);
}

// In ascending order; NaN, which was not measured, is left out.
inline std::vector<double> sorted(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  std::ranges::sort(values);
  return values;
}

inline double quantile(std::vector<double> values, double p) {
  return sorted_quantile(sorted(std::move(values)), p);
}

}  // namespace maniple
