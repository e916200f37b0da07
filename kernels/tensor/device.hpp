// One compute device: its memory and its order of work. On the CPU
// the work is done when a call returns; on a GPU calls join a stream.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace maniple {

// A pending copy to the host.
class Download {
 public:
  virtual ~Download() = default;
  virtual bool ready() = 0;                       // never waits
  virtual std::span<const std::byte> wait() = 0;  // the bytes, which live as long as this
};

// Recorded work that can run again.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // "cpu, 2 threads, avx512_bf16": goes into the banner and into every result's record.
  virtual std::string description() const = 0;
  // True where the host may read and write the device's memory (every CPU backend).
  virtual bool shares_host_memory() const = 0;

  // At least 64-byte aligned. Content: zeros on a CPU, whose backends rely on it; on a GPU what was there before (zeroed()).
  // Throws Error (preflight) when there is no memory.
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void release(std::byte* memory, size_t bytes) noexcept = 0;
  // Bytes that this process may still allocate, within the cgroup's limit too.
  virtual size_t free_memory() const = 0;
  // Size of the device's own memory in bytes; 0 where it has none.
  virtual size_t total_memory() const { return 0; }
  // UUID of a GPU, else empty. Ranks with the same one share its memory.
  virtual std::string uuid() const { return {}; }

  // The host's bytes may change as soon as it returns.
  virtual void upload(std::byte* to_device, const std::byte* from_host, size_t bytes) = 0;
  // Writes zeros.
  virtual void clear(std::byte* memory, size_t bytes) {
    const std::vector<std::byte> zeros(bytes);
    upload(memory, zeros.data(), bytes);
  }
  // Copies within the device.
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // Waits until the bytes are on the host.
  virtual void download(std::byte* to_host, const std::byte* from_device, size_t bytes) = 0;
  // The copy joins the order of work now; later work may overwrite the source.
  virtual std::unique_ptr<Download> start_download(const std::byte* from_device, size_t bytes) = 0;
  virtual void synchronize() = 0;

  // Records the operations, copies (copy()) and collectives of capturing communicators that `work` calls,
  // without running them. replay() runs them with the same shapes and addresses. `work` calls nothing else of
  // the device. Each operation must have run with these shapes before.
  virtual bool captures() const { return false; }
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;
};

// The Download of a synchronous device.
class FinishedDownload final : public Download {
 public:
  FinishedDownload(Device& device, const std::byte* from, size_t bytes) : bytes_(bytes) {
    device.download(bytes_.data(), from, bytes);
  }
  bool ready() override { return true; }
  std::span<const std::byte> wait() override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace maniple
