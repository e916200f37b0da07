// The CUDA backend over emulated blocks: its host code and its kernels are the product's; memory, stream and
// library are stand-ins.
#pragma once

#include <emulation/emulator.hpp>
#include <kernels/backend.hpp>

#include <map>

namespace maniple::emulation {

// Host memory that faults outside of launches and copies: this finds code that follows a device pointer.
// Within a launch, code that runs past the end of an allocation faults. Memory starts as 0xff: NaN, or -1.
class EmulatedDevice : public Device, public DeviceMemory {
 public:
  // seed: the first of the orders in which threads run.
  explicit EmulatedDevice(uint64_t seed = 1) : order_{seed, 0, this} {}
  ~EmulatedDevice() override;

  Order& stream() { return order_; }
  std::string description() const override { return "emulated cuda"; }
  bool shares_host_memory() const override { return false; }
  std::byte* allocate(size_t bytes) override;
  void release(std::byte* memory, size_t bytes) noexcept override;
  size_t free_memory() const override { return size_t{1} << 30; }
  void upload(std::byte* to_device, const std::byte* from_host, size_t bytes) override;
  void download(std::byte* to_host, const std::byte* from_device, size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  std::unique_ptr<Download> start_download(const std::byte* from_device, size_t bytes) override;
  void synchronize() override {}
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;

  void set_reachable(bool reachable) override;
  size_t held() const;  // bytes, in whole pages

 private:
  // Copies accept only memory of the device on its side, as on a GPU that cannot reach the host's.
  void require_mine(const std::byte* memory, size_t bytes) const;

  Order order_;
  std::map<std::byte*, size_t> mappings_;  // first page, pages that hold data
};

// What the library makes of codes. refused_later: it computes the product that is tried, and no shape of a model.
enum class LibraryCodes : uint8_t { right, wrong, refused, refused_later };

// Its device is an EmulatedDevice.
Backend emulated_cuda_backend(uint64_t seed, LibraryCodes codes = LibraryCodes::right);

}  // namespace maniple::emulation
