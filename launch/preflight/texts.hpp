// Numbers as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace maniple {

// "64 KiB", "13.5 GiB", "unlimited"
std::string bytes_text(uint64_t bytes);
// Ascending numbers: "0-3,8". None: "-".
std::string ranges_text(std::span<const int> numbers);

}  // namespace maniple
