// Which processors each rank works on.
#pragma once

#include <parallel/world.hpp>

#include <optional>
#include <span>
#include <vector>

namespace maniple {

struct CpuShare {
  int threads = 1;
  std::vector<int> cpus;  // logical CPUs to pin the threads to, one each; empty: CPUs are shared, leave the
                          // threads to the system
};

// masks: the logical CPUs that each rank may use, ascending. Ranks of a node with the same mask share it
// evenly. `threads` overrides the number.
CpuShare share_cpus(std::span<const std::vector<int>> masks, const std::vector<Place>& places, int rank,
                    std::optional<int> threads);

}  // namespace maniple
