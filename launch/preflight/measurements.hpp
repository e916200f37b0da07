// What doctor measures in the given layout, over the channels and
// kernels that generate will use; and which of the numbers look wrong.
#pragma once

#include <kernels/backend.hpp>
#include <launch/preflight/checks.hpp>

#include <string>
#include <vector>

namespace maniple {

// One quantity, measured by all or some ranks.
struct Measurement {
  std::string name;
  std::string unit;
  bool more_is_better = false;
  double tolerance = 3;         // a rank this many times worse than the median looks wrong
  std::vector<double> by_rank;  // in `unit`; 0: not measured there
};

// Collective. Reads the model, unless its path is empty, and writes into a folder, if one is given.
std::vector<Measurement> measure(World& world, const JobPlan& plan, Backend& backend,
                                 const std::filesystem::path& model,
                                 const std::optional<std::filesystem::path>& folder);

// Median, best and worst of each, with their ranks.
std::string measurements_text(const std::vector<Measurement>& measured,
                              const std::vector<RankLocation>& locations);
// A warning for each series in which ranks are far from the median.
std::vector<Finding> find_outliers(const std::vector<Measurement>& measured,
                                   const std::vector<RankLocation>& locations);

}  // namespace maniple
