// For messages that name the sizes that would fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace maniple {

// Divisors of n, ascending, up to 64 (more ranks than that hold no part of a dimension); at most the first
// eight.
std::vector<int> small_divisors(int64_t n);

// "1, 2, 4 or 8"
std::string alternatives(const std::vector<int>& numbers);

}  // namespace maniple
