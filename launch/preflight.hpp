// Before anything is loaded: which processors each rank works on.
#pragma once

#include <parallel/world.hpp>

#include <optional>
#include <span>
#include <string>
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

// Names the ranks that were bound to one CPU of a machine with several for each rank, which is what mpirun
// does by default to one or two ranks. cpus_of_node: the CPUs of each rank's machine. Nothing if all is well.
std::optional<std::string> binding_warning(std::span<const std::vector<int>> masks,
                                           std::span<const int> cpus_of_node,
                                           const std::vector<Place>& places);

struct Preflight {
  CpuShare share;
  std::optional<std::string> warning;  // the same on every rank
};

// Collective.
Preflight run_preflight(World& world, std::optional<int> threads);

}  // namespace maniple
