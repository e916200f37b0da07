#include <kernels/cpu/cpu_device.hpp>
#include <kernels/support/check.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

namespace maniple {

namespace {

constexpr size_t alignment = 64;
constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t unlimited = std::numeric_limits<size_t>::max();

constexpr size_t rounded_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// The number after `key` in a file of "key number" lines, or `missing`. An empty key: the file is one number
// ("max" is none).
size_t number_in(const std::filesystem::path& path, const std::string& key, size_t missing) {
  std::ifstream file(path);
  size_t number = 0;
  if (key.empty()) return file >> number ? number : missing;
  for (std::string word; file >> word;)
    if (word == key) return file >> number ? number : missing;
  return missing;
}

struct CgroupFiles {
  const char* root;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // key in memory.stat: file pages that the kernel drops before it refuses memory
};

constexpr CgroupFiles version_1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupFiles version_2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

size_t room_in(const std::filesystem::path& group, const CgroupFiles& files) {
  const size_t limit = number_in(group / files.limit, "", unlimited);
  if (limit == unlimited) return unlimited;
  const size_t usage = number_in(group / files.usage, "", 0);
  const size_t used = usage - std::min(usage, number_in(group / "memory.stat", files.reclaimable, 0));
  return limit - std::min(limit, used);
}

// Limits hold for a group and all its ancestors. In a container the path may name a group that is not
// visible: then the root counts.
size_t cgroup_room() {
  std::ifstream file("/proc/self/cgroup");
  size_t room = unlimited;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const CgroupFiles& files = controllers.empty() ? version_2 : version_1;
    std::filesystem::path relative = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (; !relative.empty(); relative = relative.parent_path())
      room = std::min(room, room_in(files.root / relative, files));
    room = std::min(room, room_in(files.root, files));
  }
  return room;
}

[[noreturn]] void out_of_memory(size_t bytes, size_t free) {
  constexpr double mib = 1024.0 * 1024.0;
  throw Error(ExitCode::preflight,
              fmt::format("cannot allocate {:.1f} MiB: {:.1f} MiB are free", static_cast<double>(bytes) / mib,
                          static_cast<double>(free) / mib),
              "weights, KV cache and workspace of this rank must fit in its memory",
              "use a smaller KV cache, more ranks (--tp), or a job with more memory");
}

// A mapping that begins on a huge page.
std::byte* map_huge(size_t bytes) {
  const size_t wanted = rounded_up(bytes, huge_page), mapped = wanted + huge_page;
  void* start =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  std::byte* const begin = static_cast<std::byte*>(start);
  const size_t lead =
      rounded_up(reinterpret_cast<uintptr_t>(begin), huge_page) - reinterpret_cast<uintptr_t>(begin);
  if (lead > 0) munmap(begin, lead);
  munmap(begin + lead + wanted, huge_page - lead);
  madvise(begin + lead, wanted, MADV_HUGEPAGE);
  return begin + lead;
}

std::byte* zeroed(size_t bytes) {
  void* memory = std::aligned_alloc(alignment, rounded_up(std::max<size_t>(bytes, 1), alignment));
  if (memory) std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::byte* CpuDevice::allocate(size_t bytes) {
  const bool large = bytes >= huge_page;
  // The system promises more memory than it has, so a large request is compared with what is free.
  if (const size_t free = large ? free_memory() : unlimited; bytes > free) out_of_memory(bytes, free);
  std::byte* const memory = large ? map_huge(bytes) : zeroed(bytes);
  if (!memory) out_of_memory(bytes, free_memory());
  return memory;
}

void CpuDevice::release(std::byte* memory, size_t bytes) noexcept {
  if (bytes >= huge_page)
    munmap(memory, rounded_up(bytes, huge_page));
  else
    std::free(memory);
}

size_t CpuDevice::free_memory() const {
  const size_t kib = number_in("/proc/meminfo", "MemAvailable:", unlimited / 1024);
  return std::min(kib * 1024, cgroup_room());
}

void CpuDevice::upload(std::byte* to_device, const std::byte* from_host, size_t bytes) {
  if (bytes > 0) std::memcpy(to_device, from_host, bytes);
}

void CpuDevice::download(std::byte* to_host, const std::byte* from_device, size_t bytes) {
  if (bytes > 0) std::memcpy(to_host, from_device, bytes);
}

std::unique_ptr<Graph> CpuDevice::capture(const std::function<void()>&) {
  fail(ExitCode::internal, "this device captures nothing");
}

std::unique_ptr<Download> CpuDevice::start_download(const std::byte* from_device, size_t bytes) {
  return std::make_unique<FinishedDownload>(*this, from_device, bytes);
}

}  // namespace maniple
