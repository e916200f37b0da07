// The device that tests of the primitives run on: here a GPU.
#pragma once

#include <kernels/cuda/cuda_backend.hpp>
#include <kernels/cuda/cuda_device.hpp>

namespace maniple::device {

class DeviceUnderTest {
 public:
  explicit DeviceUnderTest(uint64_t) {}
  Device& memory() { return memory_; }
  Stream stream() { return memory_.stream(); }

  static std::string lack() { return cuda::visible_gpus() > 0 ? "" : "no GPU: none is visible"; }

 private:
  cuda::CudaDevice memory_{0};
};

}  // namespace maniple::device
