// Tests of kernels: under emulation by default, on a GPU where the include path says so (tests/gpu).
#pragma once

#include <device/under_test.hpp>
#include <kernels/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace maniple::testing {

template <typename T>
Tensor uploaded(Device& device, const std::vector<T>& values) {
  Tensor tensor(device, DType::uint8, {static_cast<int64_t>(values.size() * sizeof(T))});
  device.upload(tensor.view().data, reinterpret_cast<const std::byte*>(values.data()), tensor.view().bytes());
  return tensor;
}
template <typename T>
std::vector<T> downloaded(Device& device, const Tensor& tensor) {
  std::vector<T> values(tensor.view().bytes() / sizeof(T));
  device.download(reinterpret_cast<std::byte*>(values.data()), tensor.view().data, tensor.view().bytes());
  return values;
}
template <typename T>
T* data(Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.view().data);
}

// Under emulation the parameter is the first order of threads: ascending, descending and random ones.
class DeviceTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    if (const std::string no_gpu = device::DeviceUnderTest::lack(); !no_gpu.empty()) GTEST_SKIP() << no_gpu;
    device_ = std::make_unique<device::DeviceUnderTest>(GetParam());
  }
  device::DeviceUnderTest& device() { return *device_; }

 private:
  std::unique_ptr<device::DeviceUnderTest> device_;
};

}  // namespace maniple::testing
