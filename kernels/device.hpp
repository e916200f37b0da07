// One compute device: its memory, its order of work. On the CPU work is done when a call returns; on a GPU
// calls join a stream.
#pragma once

#include <cstddef>
#include <string>

namespace maniple {

class Device {
 public:
  virtual ~Device() = default;

  // "cpu, 2 threads, avx512_bf16": goes into the banner and into every result's record.
  virtual std::string description() const = 0;
  // True where the host may read and write the device's memory (every CPU backend).
  virtual bool shares_host_memory() const = 0;

  // At least 64-byte aligned, zeroed. Throws Error (preflight) when there is no memory.
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void release(std::byte* memory, size_t bytes) noexcept = 0;
  // Bytes that this process may still allocate, within the cgroup's limit too.
  virtual size_t free_memory() const = 0;

  virtual void upload(std::byte* to_device, const std::byte* from_host, size_t bytes) = 0;
  // Waits until the bytes are on the host.
  virtual void download(std::byte* to_host, const std::byte* from_device, size_t bytes) = 0;
  virtual void synchronize() = 0;
};

}  // namespace maniple
