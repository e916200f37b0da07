// The numbers of a serving bench: what analysis/README.md computes of a run, for each repeat.
#pragma once

#include <launch/tools/analysis/statistics.hpp>
#include <launch/tools/analysis/summary.hpp>
#include <launch/tools/bench/rounds.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

struct Figure {
  Metric metric;    // a value for each repeat
  std::string key;  // its name in the JSON of vLLM's benchmarks
  Interval interval() const { return median_interval(metric.values); }
};

struct Tokens {
  uint64_t prompt = 0, output = 0;
};
Tokens tokens_of(const Round& round);

// suffix: of the metrics' names.
std::vector<Figure> figures_of(std::span<const Round> repeats, const std::string& suffix = {});
// By the name of its metric, which must be there.
const Figure& find(const std::vector<Figure>& figures, std::string_view name);

}  // namespace maniple
