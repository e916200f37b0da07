// One GPU: its memory and one stream, which every call joins.
#pragma once

#include <device/stream.hpp>
#include <kernels/support/unique_handle.hpp>
#include <kernels/tensor/device.hpp>

#include <cuda_runtime_api.h>

#include <vector>

namespace maniple::cuda {

using StreamHandle = PlainHandle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = PlainHandle<cudaEvent_t, cudaEventDestroy>;
using UniqueEvent = UniqueHandle<EventHandle>;
using PinnedMemory = PlainHandle<std::byte*, cudaFreeHost>;

UniqueEvent make_event();

// Pinned memory for copies, and the event of its last copy.
struct Staging {
  explicit Staging(size_t size);
  UniqueHandle<PinnedMemory> memory;
  UniqueEvent copied;
  size_t bytes;
};

class CudaDevice : public Device {
 public:
  // index: among the visible GPUs. Throws Error (preflight) where
  // there is no such GPU. Selects the GPU for the calling thread.
  explicit CudaDevice(int index);

  // "cuda, NVIDIA H200, GPU-0a1b..., 132 SMs"
  std::string description() const override { return description_; }
  bool shares_host_memory() const override { return false; }
  std::byte* allocate(size_t bytes) override;
  void release(std::byte* memory, size_t bytes) noexcept override;
  size_t free_memory() const override;
  size_t total_memory() const override;
  // Returns when the bytes are staged: the host's memory may then change.
  void upload(std::byte* to_device, const std::byte* from_host, size_t bytes) override;
  void download(std::byte* to_host, const std::byte* from_device, size_t bytes) override;
  void clear(std::byte* memory, size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  std::unique_ptr<Download> start_download(const std::byte* from_device, size_t bytes) override;
  void synchronize() override;
  bool captures() const override { return true; }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;

  device::Stream stream() const { return stream_.get(); }
  std::string uuid() const override { return uuid_; }  // "GPU-" and 32 hexadecimal digits in five groups
  // As GpuIdentity::bus; parts of one GPU (MIG) have the same.
  const std::string& bus() const { return bus_; }

 private:
  class CudaDownload;
  static constexpr size_t staging_bytes = size_t{4} << 20;
  Staging& next_staging();

  std::string description_, uuid_, bus_;
  UniqueHandle<StreamHandle> stream_;
  std::vector<Staging> staging_;
  size_t turn_ = 0;
  std::vector<Staging> spare_;  // of finished downloads
};

}  // namespace maniple::cuda
