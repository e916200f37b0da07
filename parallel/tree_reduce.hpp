// The order in which the values of ranks are added, as data that every rank derives. See
// Communicator::all_reduce for the contract.
#pragma once

#include <vector>

namespace maniple {

// One addition of the tree, to = to + from: the value of rank `to` (to < from) is the left operand.
struct TreeAddition {
  int to = 0;
  int from = 0;
};

// Level by level, nearest ranks first. Size 6: (0,1) (2,3) (4,5) | (0,2) | (0,4). The additions of one level
// are independent.
inline std::vector<std::vector<TreeAddition>> tree_levels(int size) {
  std::vector<std::vector<TreeAddition>> levels;
  for (int distance = 1; distance < size; distance *= 2) {
    std::vector<TreeAddition>& level = levels.emplace_back();
    for (int rank = 0; rank + distance < size; rank += 2 * distance) level.push_back({rank, rank + distance});
  }
  return levels;
}

}  // namespace maniple
