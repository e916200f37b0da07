#include <parallel/tree_reduce.hpp>

namespace maniple {

std::vector<std::vector<TreeAddition>> tree_levels(int size) {
  std::vector<std::vector<TreeAddition>> levels;
  for (int distance = 1; distance < size; distance *= 2) {
    std::vector<TreeAddition>& level = levels.emplace_back();
    for (int rank = 0; rank + distance < size; rank += 2 * distance) level.push_back({rank, rank + distance});
  }
  return levels;
}

}  // namespace maniple
