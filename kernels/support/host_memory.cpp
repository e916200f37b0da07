#include <kernels/support/host_memory.hpp>
#include <kernels/support/number_text.hpp>

#include <fmt/format.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace maniple {

namespace {

namespace fs = std::filesystem;

constexpr size_t unlimited = HostMemory::unlimited;

// The number after `key` in a file of "key number" lines, or `missing`. An empty key: the file is one number
// ("max" is none).
size_t number_in(const fs::path& path, const std::string& key, size_t missing) {
  std::ifstream file(path);
  size_t number = 0;
  if (key.empty()) return file >> number ? number : missing;
  for (std::string word; file >> word;)
    if (word == key) return file >> number ? number : missing;
  return missing;
}

struct CgroupFiles {
  const char* root;  // from the root of the file system
  const char* limit;
  const char* usage;
  const char* reclaimable;  // key in memory.stat: file pages that the kernel drops before it refuses memory
};

constexpr CgroupFiles version_1{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupFiles version_2{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

HostMemory memory_of(const fs::path& group, const CgroupFiles& files) {
  const size_t limit = number_in(group / files.limit, "", unlimited);
  // Version 1 writes the largest number of pages for "no limit".
  if (limit >= unlimited / 4) return {};
  const size_t usage = number_in(group / files.usage, "", 0);
  const size_t used = usage - std::min(usage, number_in(group / "memory.stat", files.reclaimable, 0));
  return {limit - std::min(limit, used), limit};
}

void tighten(HostMemory& memory, const HostMemory& other) {
  memory.free = std::min(memory.free, other.free);
  memory.limit = std::min(memory.limit, other.limit);
}

std::optional<size_t> address_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

// Limits hold for a group and all its ancestors. In a container the
// path may name an invisible group: then the root's limit counts.
HostMemory host_memory(const fs::path& root) {
  HostMemory memory{number_in(root / "proc/meminfo", "MemAvailable:", unlimited / 1024) * 1024, unlimited};
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const CgroupFiles& files = controllers.empty() ? version_2 : version_1;
    fs::path relative = fs::path(line.substr(second + 1)).relative_path();
    for (; !relative.empty(); relative = relative.parent_path())
      tighten(memory, memory_of(root / files.root / relative, files));
    tighten(memory, memory_of(root / files.root, files));
  }
  return memory;
}

size_t free_addresses() {
  const std::optional<size_t> limit = address_limit();
  if (!limit) return unlimited;
  const size_t used = number_in("/proc/self/statm", "", 0) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return *limit - std::min(*limit, used);
}

void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

std::string address_limit_text(size_t limit) {
  return limit == unlimited
             ? ""
             : fmt::format(" (ulimit -v allows this process {} of addresses)", bytes_text(limit));
}

std::string address_limit_text() { return address_limit_text(address_limit().value_or(unlimited)); }

Error out_of_memory() {
  const std::string limit = address_limit_text();
  return {ExitCode::preflight, "out of memory" + limit, "this process may have no more memory",
          limit.empty() ? "give the job more memory, or use more ranks a replica (`tensor_size`)"
                        : address_limit_remedy};
}

}  // namespace maniple
