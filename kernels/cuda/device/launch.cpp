#include <device/launch.hpp>
#include <kernels/cuda/device/cuda_check.hpp>

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

namespace maniple::device {

namespace {

constexpr size_t usual_shared_bytes = 48 << 10;  // larger sizes must be requested

// What was asked of the driver for a kernel: it answers the same each time, and slowly.
struct Known {
  size_t reserved = usual_shared_bytes;
  std::map<std::pair<int, size_t>, int> resident;  // by threads and bytes
  std::optional<bool> waits;
};
Known& known(const void* kernel) {
  static std::unordered_map<const void*, Known> kernels;  // a process has one thread that launches
  return kernels[kernel];
}

void set_attribute(const void* kernel, cudaFuncAttribute attribute, size_t value) {
  cuda::check(cudaFuncSetAttribute(kernel, attribute, static_cast<int>(value)), "reserving shared memory");
}

// Called before a launch and before the occupancy query, which assumes the largest carveout: the driver may choose a smaller one.
// Never lowers the size: captured graphs may need more.
void reserve_shared_memory(const void* kernel, size_t bytes) {
  size_t& reserved = known(kernel).reserved;
  if (bytes <= reserved) return;
  set_attribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  set_attribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  reserved = bytes;
}

int ask_for_resident_blocks(const void* kernel, int threads, size_t shared_bytes) {
  int device = 0, multiprocessors = 0, blocks = 0;
  cuda::check(cudaGetDevice(&device), "asking for the device");
  cuda::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
              "counting multiprocessors");
  cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
              "counting the blocks that fit");
  require(blocks > 0, "a kernel needs more shared memory than this GPU has");
  return blocks * multiprocessors;
}

// Code that was made for GPUs before 9.0 does not wait, on whatever GPU it runs. Older drivers do not capture such launches.
bool waits_for_previous(const void* kernel) {
  std::optional<bool>& waits = known(kernel).waits;
  if (waits) return *waits;
  int driver = 0;
  cudaFuncAttributes attributes{};
  cuda::check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  cuda::check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel's code");
  return waits.emplace(attributes.ptxVersion >= 90 && driver >= 12030);
}

bool early_starts_allowed = true;

}  // namespace

void allow_early_starts(bool allowed) { early_starts_allowed = allowed; }

int resident_blocks_of(const void* kernel, int threads, size_t shared_bytes) {
  reserve_shared_memory(kernel, shared_bytes);
  int& blocks = known(kernel).resident[{threads, shared_bytes}];
  if (blocks == 0) blocks = ask_for_resident_blocks(kernel, threads, shared_bytes);
  return blocks;
}

void launch_kernel(const void* kernel, Grid grid, int threads, size_t shared_bytes, Stream stream,
                   void** arguments, bool early) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  reserve_shared_memory(kernel, shared_bytes);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{
      .gridDim = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                  static_cast<unsigned>(grid.z)},
      .blockDim = dim3(static_cast<unsigned>(threads)),
      .dynamicSmemBytes = shared_bytes,
      .stream = stream,
      .attrs = &attribute,
      .numAttrs = early && early_starts_allowed && waits_for_previous(kernel) ? 1u : 0u};
  cuda::check(cudaLaunchKernelExC(&config, kernel, arguments), "launching a kernel");
}

}  // namespace maniple::device
