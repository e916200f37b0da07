// Ranks that hold up the others. Own time is that of computing, without waiting in collectives: a slow rank has more of it,
// and the ranks that wait for it do not.
#pragma once

#include <launch/tools/analysis/recorded_ranks.hpp>

#include <vector>

namespace maniple {

struct Straggler {
  int rank = -1;
  double ratio = 0;  // the median of those windows: own time over that of the others
  double from_s = 0, to_s = 0;
  int windows = 0;
};

// A rank is named when its own time per step is more than 1.1 times that of the others of its tensor group, in five windows
// in a row or more. All of them compute the same steps.
std::vector<Straggler> slow_ranks(const Record& record);

}  // namespace maniple
