// The device that tests of the primitives run on: here a GPU.
#pragma once

#include <kernels/cuda/cuda_backend.hpp>
#include <kernels/cuda/cuda_device.hpp>
#include <kernels/cuda/device/cuda_check.hpp>

namespace maniple::device {

// Its fresh memory is NaN, and -1 as an index, as under emulation.
class FilledDevice : public cuda::CudaDevice {
 public:
  FilledDevice() : CudaDevice(0) {}
  std::byte* allocate(size_t bytes) override {
    std::byte* const memory = CudaDevice::allocate(bytes);
    cuda::check(cudaMemsetAsync(memory, 0xff, bytes, stream()), "filling fresh memory");
    return memory;
  }
};

class DeviceUnderTest {
 public:
  explicit DeviceUnderTest(uint64_t) {}
  Device& memory() { return memory_; }
  Stream stream() { return memory_.stream(); }

  static std::string lack() { return cuda::visible_gpus() > 0 ? "" : "no GPU: none is visible"; }

 private:
  FilledDevice memory_;
};

}  // namespace maniple::device
