#include <launch/tools/analysis/statistics.hpp>

#include <boost/math/distributions/binomial.hpp>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace maniple {
namespace {

constexpr double tail = 0.025;  // of each side
constexpr size_t resamples = 10'000, fewest_for_an_interval = 6;

// Boost's generators and distributions, because those of the standard libraries differ.
double median_of_resample(const std::vector<double>& values, boost::random::mt19937& bits) {
  boost::random::uniform_int_distribution<uint32_t> index(0, static_cast<uint32_t>(values.size() - 1));
  std::vector<double> drawn(values.size());
  std::ranges::generate(drawn, [&] { return values[index(bits)]; });
  std::ranges::sort(drawn);
  return sorted_quantile(drawn, 0.5);
}

}  // namespace

double mean(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double value : values)
    if (!std::isnan(value)) sum += value, ++count;
  return sum / count;
}

double quantile(const std::vector<double>& values, const std::vector<double>& weights, double p) {
  std::vector<std::pair<double, double>> ordered;  // value, values up to and with it
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isnan(values[i]) && weights[i] > 0) ordered.emplace_back(values[i], weights[i]);
  if (ordered.empty()) return not_measured;
  std::ranges::sort(ordered);
  for (size_t i = 1; i < ordered.size(); ++i) ordered[i].second += ordered[i - 1].second;
  const auto at = [&](double index) {
    const auto found = std::ranges::upper_bound(ordered, index, {}, &std::pair<double, double>::second);
    return found == ordered.end() ? ordered.back().first : found->first;
  };
  const double last = ordered.back().second - 1, place = p * last, below = std::floor(place);
  return at(below) + (place - below) * (at(std::min(below + 1, last)) - at(below));
}

Interval median_interval(std::vector<double> given) {
  const std::vector<double> values = sorted(std::move(given));
  const double median = sorted_quantile(values, 0.5);
  if (values.size() < fewest_for_an_interval) return {median, not_measured, not_measured};
  // The largest k such that fewer than k + 1 values lie below the median with at most this probability.
  const boost::math::binomial half(static_cast<double>(values.size()), 0.5);
  const auto k = static_cast<size_t>(boost::math::quantile(half, tail));
  return {median, values[k], values[values.size() - 1 - k]};
}

Interval ratio_interval(const std::vector<double>& given_a, const std::vector<double>& given_b) {
  const std::vector<double> a = sorted(given_a), b = sorted(given_b);
  const double median = sorted_quantile(b, 0.5) / sorted_quantile(a, 0.5);
  if (a.size() < 2 || b.size() < 2) return {median, not_measured, not_measured};
  boost::random::mt19937 bits;
  std::vector<double> ratios(resamples);
  for (double& ratio : ratios) {
    const double below = median_of_resample(a, bits);
    ratio = median_of_resample(b, bits) / below;
  }
  ratios = sorted(std::move(ratios));
  return {median, sorted_quantile(ratios, tail), sorted_quantile(ratios, 1 - tail)};
}

double karp_flatt(double speedup, double p) {
  return p > 1 ? (1 / speedup - 1 / p) / (1 - 1 / p) : not_measured;
}

double amdahl_serial_fraction(const std::vector<double>& p, const std::vector<double>& speedup) {
  double products = 0, squares = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double parallel = 1 - 1 / p[i];
    products += parallel * (1 / speedup[i] - 1 / p[i]);
    squares += parallel * parallel;
  }
  return squares > 0 ? products / squares : not_measured;
}

}  // namespace maniple
