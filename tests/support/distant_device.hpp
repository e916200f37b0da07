// A device whose memory the host cannot reach, as on a GPU: its
// pointers are not addresses, so code that follows one faults.
#pragma once

#include <kernels/cpu/cpu_device.hpp>
#include <kernels/reference/reference_ops.hpp>

#include <cstdint>

namespace maniple {

class DistantDevice : public CpuDevice {
 public:
  DistantDevice() : CpuDevice("memory out of reach") {}

  bool shares_host_memory() const override { return false; }
  std::byte* allocate(size_t bytes) override { return moved(CpuDevice::allocate(bytes)); }
  void release(std::byte* memory, size_t bytes) noexcept override {
    CpuDevice::release(address(memory), bytes);
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    CpuDevice::upload(address(to), address(from), bytes);
  }
  void upload(std::byte* to_device, const std::byte* from_host, size_t bytes) override {
    CpuDevice::upload(address(to_device), from_host, bytes);
  }
  void download(std::byte* to_host, const std::byte* from_device, size_t bytes) override {
    CpuDevice::download(to_host, address(from_device), bytes);
  }

  template <typename Byte>
  static Byte* address(Byte* pointer) {
    return pointer ? reinterpret_cast<Byte*>(reinterpret_cast<uintptr_t>(pointer) - distance) : nullptr;
  }

 private:
  static std::byte* moved(std::byte* pointer) {
    return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(pointer) + distance);
  }
  static constexpr uintptr_t distance = uintptr_t{1} << 62;  // outside the addresses of any process
};

// The operations that communicators need, on such a device.
class DistantOps : public ReferenceOps {
 public:
  explicit DistantOps(DistantDevice& device) : ReferenceOps(device) {}

  void add(ConstTensorView a, ConstTensorView b, TensorView out) override {
    a.data = DistantDevice::address(a.data);
    b.data = DistantDevice::address(b.data);
    out.data = DistantDevice::address(out.data);
    ReferenceOps::add(a, b, out);
  }
};

}  // namespace maniple
