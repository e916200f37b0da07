#include <kernels/cpu/cpu_device.hpp>
#include <kernels/support/check.hpp>
#include <kernels/support/host_memory.hpp>
#include <kernels/support/number_text.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace maniple {

namespace {

// Smaller ones cost few page walks.
constexpr size_t least_in_region = 256 << 10;

[[noreturn]] void out_of_memory(size_t bytes, size_t free) {
  const std::string limit = address_limit_text();
  throw Error(ExitCode::preflight,
              fmt::format("cannot allocate {}: {} are free{}", bytes_text(bytes), bytes_text(free), limit),
              "weights, KV cache and workspace of this rank must fit in its memory",
              limit.empty() ? "use a smaller KV cache, more ranks (`tensor_size`), or a job with more memory"
                            : address_limit_remedy);
}

std::byte* zeroed(size_t bytes) {
  void* memory =
      std::aligned_alloc(tensor_alignment, rounded_up(std::max<size_t>(bytes, 1), tensor_alignment));
  if (memory) std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::byte* CpuDevice::allocate(size_t bytes) {
  const bool large = bytes >= huge_page;
  // The system overcommits memory, so a large request is compared with the free memory.
  if (const size_t free = large ? free_memory() : HostMemory::unlimited; bytes > free)
    out_of_memory(bytes, free);
  std::byte* const memory = large                      ? map_huge(bytes)
                            : bytes >= least_in_region ? regions_.allocate(bytes)
                                                       : zeroed(bytes);
  if (!memory) out_of_memory(bytes, free_memory());
  return memory;
}

void CpuDevice::release(std::byte* memory, size_t bytes) noexcept {
  if (bytes >= huge_page)
    unmap_huge(memory, bytes);
  else if (bytes >= least_in_region)
    regions_.release(memory);
  else
    std::free(memory);
}

size_t CpuDevice::free_memory() const { return host_memory().free; }

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
