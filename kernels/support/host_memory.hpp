// Host memory that this process may still allocate.
#pragma once

#include <kernels/support/check.hpp>

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>

namespace maniple {

struct HostMemory {
  static constexpr size_t unlimited = std::numeric_limits<size_t>::max();
  size_t free = unlimited;   // bytes, within the limit too
  size_t limit = unlimited;  // the tightest of its cgroups (version 1 or 2)
};

// root: where /proc and /sys are, for tests.
HostMemory host_memory(const std::filesystem::path& root = "/");

// Bytes that ulimit -v leaves to this process; it counts reserved memory too.
size_t free_addresses();

// From here on the peak of resident memory (getrusage) is that of what follows, where the system can forget the one before.
void forget_peak_memory();

// For the message about a failed allocation or thread start: the limit of this process's address space, which
// counts reserved memory too. Empty without such a limit.
std::string address_limit_text();
std::string address_limit_text(size_t limit);  // "unlimited": the largest value
inline constexpr const char* address_limit_remedy =
    "ulimit -v unlimited before the launcher's line; sbatch --propagate=NONE where the limit is the shell's";

// Replaces std::bad_alloc.
Error out_of_memory();

}  // namespace maniple
