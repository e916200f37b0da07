// The energy that this node has used, from counters that the system offers to users.
#pragma once

#include <filesystem>
#include <vector>

namespace maniple {

class EnergyCounters {
 public:
  // root: the folder of /sys, for tests. Cray's pm_counters have the whole node; else RAPL has its processor packages, which
  // only root can read on most systems.
  explicit EnergyCounters(const std::filesystem::path& root = "/");

  // Joules since the construction; NaN where not every counter can be read. Call it at least once in the time in which RAPL
  // wraps (a minute at full load).
  double joules();

 private:
  struct Counter {
    std::filesystem::path path;
    double unit;      // joules
    double range;     // at which it wraps, in its own unit; 0: it does not
    double last = 0;  // in its own unit
  };

  std::vector<Counter> counters_;
  double joules_ = 0;
};

}  // namespace maniple
