// Checks of memory: whether the KV cache has room for a request, and a node for the weights of its ranks.
#pragma once

#include <launch/preflight/checks.hpp>

namespace maniple {

std::optional<Finding> check_cache(const JobFacts& job);
std::optional<Finding> check_memory(const JobFacts& job);

}  // namespace maniple
