#include <kernels/cpu/huge_pages.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace maniple {

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

void unmap_huge(std::byte* memory, size_t bytes) noexcept { munmap(memory, rounded_up(bytes, huge_page)); }

HugePageRegions::~HugePageRegions() {
  for (const Region& region : regions_) unmap_huge(region.begin, region_bytes);
}

std::byte* HugePageRegions::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t wanted = rounded_up(bytes, tensor_alignment);
  if (regions_.empty() || regions_.back().used + wanted > region_bytes) {
    std::byte* const begin = map_huge(region_bytes);
    if (!begin) return nullptr;
    regions_.push_back({begin});
  }
  Region& region = regions_.back();
  ++region.tensors;
  region.used += wanted;
  return region.begin + region.used - wanted;
}

void HugePageRegions::release(const std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto region = std::ranges::find_if(regions_, [memory](const Region& candidate) {
    return candidate.begin <= memory && memory < candidate.begin + region_bytes;
  });
  if (--region->tensors > 0) return;
  unmap_huge(region->begin, region_bytes);
  regions_.erase(region);
}

}  // namespace maniple
