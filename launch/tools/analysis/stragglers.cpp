#include <launch/record/recorded_run.hpp>
#include <launch/tools/analysis/statistics.hpp>
#include <launch/tools/analysis/stragglers.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace maniple {
namespace {

constexpr double threshold = 1.1;
constexpr int fewest_windows = 5;
constexpr double window_s = 2;  // between heartbeats

// How much longer somebody took in a window; NaN where that says nothing.
struct Window {
  double begin_s, end_s, ratio;
};

// The longest series above the threshold. Windows without a ratio neither count nor end one.
Straggler longest_series(const std::vector<Window>& windows) {
  Straggler longest, now;
  std::vector<double> ratios;
  for (const Window& window : windows) {
    if (std::isnan(window.ratio)) continue;
    if (window.ratio <= threshold) {
      now = {};
      ratios.clear();
      continue;
    }
    if (ratios.empty()) now.from_s = window.begin_s;
    ratios.push_back(window.ratio);
    now.to_s = window.end_s;
    now.windows = static_cast<int>(ratios.size());
    now.ratio = quantile(ratios, 0.5);
    if (now.windows > longest.windows) longest = now;
  }
  return longest;
}

// What a rank had done in sum by each of its heartbeats.
struct Totals {
  std::vector<double> time_s, steps, own_s;

  double at(const std::vector<double>& totals, double time) const {
    const auto after = std::ranges::lower_bound(time_s, time);
    if (after == time_s.end() || (after == time_s.begin() && *after > time)) return not_measured;
    const auto i = static_cast<size_t>(after - time_s.begin());
    if (time_s[i] == time) return totals[i];
    const double share = (time - time_s[i - 1]) / (time_s[i] - time_s[i - 1]);
    return totals[i - 1] + share * (totals[i] - totals[i - 1]);
  }
  // NaN where no step was computed.
  double own_per_step(double begin, double end) const {
    const double count = at(steps, end) - at(steps, begin);
    return count > 0 ? (at(own_s, end) - at(own_s, begin)) / count : not_measured;
  }
};

std::map<int, Totals> totals_of(const Record& record) {
  const auto of = [&](const char* field) { return column(record, "rank_series", field); };
  const std::vector<double> rank = of("rank"), time = of("t_s"), steps = of("steps"),
                            prefill = of("prefill_s"), decode = of("decode_s"), comm = of("comm_s");
  std::map<int, Totals> ranks;
  for (size_t row = 0; row < rank.size(); ++row) {
    if (!(rank[row] >= 0 && rank[row] < INT32_MAX)) continue;
    Totals& totals = ranks[static_cast<int>(rank[row])];
    const bool later = totals.time_s.empty() || time[row] > totals.time_s.back();
    if (!later || !std::isfinite(time[row])) continue;
    totals.time_s.push_back(time[row]);
    totals.steps.push_back(steps[row]);
    totals.own_s.push_back(prefill[row] + decode[row] - comm[row]);
  }
  return ranks;
}

// Windows in which all of a group sent heartbeats, on one grid: the ranks' own heartbeats lie beside each other.
std::vector<std::pair<double, double>> windows_of(const std::vector<const Totals*>& group) {
  double begin = 0, end = std::numeric_limits<double>::infinity(), step = window_s;
  for (const Totals* totals : group) {
    if (totals->time_s.size() < 2) return {};
    const double first = totals->time_s.front(), last = totals->time_s.back();
    begin = std::max(begin, first);
    end = std::min(end, last);
    step = std::max(step,
                    (last - first) / static_cast<double>(totals->time_s.size() - 1));  // fewer rows, of 0.3.0
  }
  std::vector<std::pair<double, double>> windows;
  for (int i = 1; begin + i * step <= end + 0.01 * step; ++i)
    windows.emplace_back(begin + (i - 1) * step, std::min(begin + i * step, end));
  return windows;
}

std::vector<Window> against_the_others(size_t mine, const std::vector<const Totals*>& group) {
  std::vector<Window> windows;
  for (const auto& [begin, end] : windows_of(group)) {
    std::vector<double> others;
    for (size_t i = 0; i < group.size(); ++i)
      if (i != mine) others.push_back(group[i]->own_per_step(begin, end));
    windows.push_back({begin, end, group[mine]->own_per_step(begin, end) / quantile(others, 0.5)});
  }
  return windows;
}

}  // namespace

std::vector<Straggler> slow_ranks(const Record& record) {
  const std::map<int, Totals> totals = totals_of(record);
  std::map<std::pair<int, int>, std::vector<int>> groups;
  for (const RecordedRank& rank : recorded_ranks(record))
    if (totals.contains(rank.rank)) groups[{rank.data, rank.pipeline}].push_back(rank.rank);
  std::vector<Straggler> stragglers;
  for (const auto& [place, ranks] : groups) {
    std::vector<const Totals*> group;
    for (const int rank : ranks) group.push_back(&totals.at(rank));
    for (size_t i = 0; group.size() > 1 && i < group.size(); ++i) {
      Straggler found = longest_series(against_the_others(i, group));
      if (found.windows < fewest_windows) continue;
      found.rank = ranks[i];
      stragglers.push_back(found);
    }
  }
  return stragglers;
}

}  // namespace maniple
