// Two runs side by side.
#pragma once

#include <launch/tools/analysis/statistics.hpp>
#include <launch/tools/analysis/summary.hpp>

#include <string>
#include <vector>

namespace maniple {

// A run with what was read and computed of it.
struct Side {
  RecordedRun run;
  Summary summary;
};

// Why the two cannot be compared: "the model differs (hash A, hash B)"; empty if they can.
std::vector<std::string> differences_of(const RecordedRun& a, const RecordedRun& b);

struct Comparison {
  std::string metric, unit;
  Interval a, b, ratio;  // b / a; no interval where the ratio was not tested
  size_t n_a = 0, n_b = 0;
  std::string verdict;  // "B is faster"
};

// The metrics that both have, in the order of a. Repetitions are the unit: what has one value a run is not tested.
std::vector<Comparison> compare(const Summary& a, const Summary& b);

std::string comparison_text(const std::vector<Comparison>& comparisons);
std::string comparison_json(const Side& a, const Side& b, const std::vector<Comparison>& comparisons);

}  // namespace maniple
