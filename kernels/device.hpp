// One compute device: its memory, its order of work. On the CPU work is done when a call returns; on a GPU
// calls join a stream.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace maniple {

// A copy to the host under way.
class Download {
 public:
  virtual ~Download() = default;
  virtual bool ready() = 0;                       // never waits
  virtual std::span<const std::byte> wait() = 0;  // the bytes, which live as long as this
};

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

  // The host's bytes may change as soon as it returns.
  virtual void upload(std::byte* to_device, const std::byte* from_host, size_t bytes) = 0;
  // Waits until the bytes are on the host.
  virtual void download(std::byte* to_host, const std::byte* from_device, size_t bytes) = 0;
  // The copy joins the order of work now; later work may overwrite the device's bytes.
  virtual std::unique_ptr<Download> start_download(const std::byte* from_device, size_t bytes) = 0;
  virtual void synchronize() = 0;
};

}  // namespace maniple
