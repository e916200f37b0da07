#include <device/launch.hpp>
#include <kernels/cuda/cuda_check.hpp>

namespace maniple::device {

namespace {

constexpr size_t usual_shared_bytes = 48 << 10;  // more is given on request

dim3 dimensions(Grid grid) {
  return {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)};
}

}  // namespace

void launch_kernel(const void* kernel, Grid grid, int threads, size_t shared_bytes, Stream stream,
                   void** arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > usual_shared_bytes)
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)),
                "reserving shared memory");
  cuda::check(cudaLaunchKernel(kernel, dimensions(grid), {static_cast<unsigned>(threads), 1, 1}, arguments,
                               shared_bytes, stream),
              "launching a kernel");
}

}  // namespace maniple::device
