// The host as a device: calls are synchronous, memory is the process's own.
#pragma once

#include <kernels/cpu/huge_pages.hpp>
#include <kernels/tensor/device.hpp>

namespace maniple {

class CpuDevice : public Device {
 public:
  explicit CpuDevice(std::string description) : description_(std::move(description)) {}

  std::string description() const override { return description_; }
  bool shares_host_memory() const override { return true; }
  // Zeros. From 256 KiB on in huge pages where the system has them, not touched before use; from 2 MiB on aligned to them.
  std::byte* allocate(size_t bytes) override;
  void release(std::byte* memory, size_t bytes) noexcept override;
  size_t free_memory() const override;
  void upload(std::byte* to_device, const std::byte* from_host, size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { upload(to, from, bytes); }
  void download(std::byte* to_host, const std::byte* from_device, size_t bytes) override;
  std::unique_ptr<Download> start_download(const std::byte* from_device, size_t bytes) override;
  void synchronize() override {}
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;

 private:
  std::string description_;
  HugePageRegions regions_;
};

}  // namespace maniple
