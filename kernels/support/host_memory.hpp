// What this process may still take of the host's memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>

namespace maniple {

struct HostMemory {
  static constexpr size_t unlimited = std::numeric_limits<size_t>::max();
  size_t free = unlimited;   // bytes, within the limit too
  size_t limit = unlimited;  // the tightest of its cgroups (version 1 or 2)
};

// root: where /proc and /sys are, for tests.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace maniple
