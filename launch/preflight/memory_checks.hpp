// Checks of memory: whether the KV cache has room for a request, a node for the weights of its ranks, and /dev/shm for
// their sums.
#pragma once

#include <launch/preflight/checks.hpp>

namespace maniple {

std::optional<Finding> check_cache(const JobFacts& job);
std::optional<Finding> check_memory(const JobFacts& job);
// Whether ranks may add in shared memory, and whether they can.
bool adds_in_shared_memory(const JobFacts& job);
std::optional<Finding> check_shared_memory(const JobFacts& job);

}  // namespace maniple
