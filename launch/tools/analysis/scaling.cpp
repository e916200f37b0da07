#include <launch/tools/analysis/scaling.hpp>
#include <launch/tools/analysis/summary.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace maniple {
namespace {

constexpr double noisy_share = 0.05;  // half of the spread, of the median

double tokens_per_s(const RecordedRun& run) {
  const Summary summary = summarize(run);
  const Metric* const rate = summary.find("out_tok_per_s");
  return rate ? rate->median() : not_measured;
}

// Of a few launches there is only the distance from the smallest to the largest.
bool is_noisy(const ScalingRow& row) {
  const bool has_interval = !std::isnan(row.rate.low);
  const double low = has_interval ? row.rate.low : row.smallest,
               high = has_interval ? row.rate.high : row.largest;
  return (high - low) / 2 > noisy_share * row.rate.median;
}

ScalingRow row_of(const StudyPoint& point, const std::vector<StudyLaunch>& launches) {
  ScalingRow row{.point = point};
  for (const StudyLaunch& launch : launches) {
    if (launch.point != point || !launch.record) continue;
    row.tokens_per_s.push_back(tokens_per_s({{}, {{{}, {}, *launch.record, false, {}}}}));
    row.nodes = static_cast<int>(quantile(column(*launch.record, "topology", "node"), 1)) + 1;
    if (text_in(*launch.record, "verdict") != "INVALID") continue;
    row.verdict = "INVALID";
    row.reason = text_in(*launch.record, "verdict_reason");
  }
  if (row.tokens_per_s.empty()) return row;
  row.rate = median_interval(row.tokens_per_s);
  row.smallest = quantile(row.tokens_per_s, 0);
  row.largest = quantile(row.tokens_per_s, 1);
  if (row.verdict.empty()) row.verdict = is_noisy(row) ? "NOISY" : "VALID";
  return row;
}

// t is the time for one output token, so that lengths drawn at random do not matter.
void relate(ScalingRow& row, const ScalingRow& reference, ScalingMode mode) {
  const double p = static_cast<double>(row.point.ranks()) / reference.point.ranks();
  row.speed_up = row.rate.median / reference.rate.median;
  row.efficiency = row.speed_up / p;
  if (mode == ScalingMode::strong) row.karp_flatt = karp_flatt(row.speed_up, p);
}

double serial_fraction_of(const std::vector<ScalingRow>& rows) {
  std::vector<double> p, speed_up;
  for (const ScalingRow& row : rows)
    if (!std::isnan(row.speed_up)) {
      p.push_back(static_cast<double>(row.point.ranks()) / rows.front().point.ranks());
      speed_up.push_back(row.speed_up);
    }
  return amdahl_serial_fraction(p, speed_up);
}

std::vector<std::string> differences_between(const std::vector<StudyLaunch>& launches) {
  std::vector<std::string> differences;
  for (const auto& [name, what] :
       {std::pair("git_commit", "versions"), {"dtype", "types"}, {"cpu_model", "processors"}}) {
    std::set<std::string> values;
    for (const StudyLaunch& launch : launches)
      if (launch.record) values.insert(text_in(*launch.record, name));
    if (values.size() > 1)
      differences.push_back(fmt::format("launches of different {}: {}", what, fmt::join(values, ", ")));
  }
  return differences;
}

}  // namespace

ScalingResult scaling_of(const Study& study, std::vector<StudyLaunch> launches) {
  ScalingResult result{study, {}, not_measured, {}, differences_between(launches)};
  for (const StudyPoint& point : study.points) result.rows.push_back(row_of(point, launches));
  for (ScalingRow& row : result.rows) relate(row, result.rows.front(), study.mode);
  if (study.mode == ScalingMode::strong) result.serial_fraction = serial_fraction_of(result.rows);
  std::ranges::copy_if(launches, std::back_inserter(result.missing),
                       [](const StudyLaunch& launch) { return !launch.record; });
  return result;
}

}  // namespace maniple
