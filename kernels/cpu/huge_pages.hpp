// Memory in huge pages. In pages of 4 KiB a product of small weights, such as those of experts, waits for page walks, and
// the processor's prefetch ends with each page.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace maniple {

constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t tensor_alignment = 64;

constexpr size_t rounded_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// A mapping aligned to huge pages, zero and not touched before use; null where the system has no addresses.
std::byte* map_huge(size_t bytes);
void unmap_huge(std::byte* memory, size_t bytes) noexcept;

// Tensors smaller than a huge page, one after the other in mappings of many. A mapping goes back to the system with the
// last of its tensors. Thread-safe.
class HugePageRegions {
 public:
  ~HugePageRegions();
  // Zero; null where the system has no addresses. bytes <= region_bytes
  std::byte* allocate(size_t bytes);
  void release(const std::byte* memory) noexcept;

  static constexpr size_t region_bytes = 16 * huge_page;

 private:
  struct Region {
    std::byte* begin;
    size_t used = 0;  // bytes
    size_t tensors = 0;
  };
  std::mutex mutex_;
  std::vector<Region> regions_;  // the last one has room
};

}  // namespace maniple
