#include <device/launch.hpp>
#include <kernels/cuda/device/cuda_check.hpp>

namespace maniple::device {

namespace {

constexpr size_t usual_shared_bytes = 48 << 10;  // larger sizes must be requested

dim3 dimensions(Grid grid) {
  return {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)};
}

// Called before a launch and before the occupancy query.
// Never lowers the size: captured graphs may need more.
void reserve_shared_memory(const void* kernel, size_t bytes) {
  if (bytes <= usual_shared_bytes) return;
  cudaFuncAttributes attributes;
  cuda::check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel's attributes");
  if (static_cast<size_t>(attributes.maxDynamicSharedSizeBytes) >= bytes) return;
  cuda::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      "reserving shared memory");
}

}  // namespace

int resident_blocks_of(const void* kernel, int threads, size_t shared_bytes) {
  reserve_shared_memory(kernel, shared_bytes);
  int device = 0, multiprocessors = 0, blocks = 0;
  cuda::check(cudaGetDevice(&device), "asking for the device");
  cuda::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
              "counting multiprocessors");
  cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
              "counting the blocks that fit");
  require(blocks > 0, "a kernel needs more shared memory than this GPU has");
  return blocks * multiprocessors;
}

void launch_kernel(const void* kernel, Grid grid, int threads, size_t shared_bytes, Stream stream,
                   void** arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  reserve_shared_memory(kernel, shared_bytes);
  cuda::check(cudaLaunchKernel(kernel, dimensions(grid), {static_cast<unsigned>(threads), 1, 1}, arguments,
                               shared_bytes, stream),
              "launching a kernel");
}

}  // namespace maniple::device
