#include <emulation/emulated_backend.hpp>
#include <kernels/cuda/cuda_ops.hpp>
#include <kernels/reference/rows.hpp>
#include <support/code_products.hpp>

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace maniple::emulation {

namespace {

constexpr size_t page = 4096, alignment = 64, spoilt_bytes = size_t{8} << 20;

size_t rounded_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// A file of 0xff: NaN in every floating-point type, -1 in int32.
int spoilt_pages() {
  static const int file = [] {
    const std::vector<std::byte> bytes(spoilt_bytes, std::byte{0xff});
    const int made = memfd_create("spoilt", MFD_CLOEXEC);
    if (made < 0 || write(made, bytes.data(), spoilt_bytes) != static_cast<ssize_t>(spoilt_bytes))
      throw std::bad_alloc();
    return made;
  }();
  return file;
}

// Makes the memory reachable for its lifetime.
class Reach {
 public:
  explicit Reach(DeviceMemory& memory) : memory_(memory) { memory_.set_reachable(true); }
  ~Reach() { memory_.set_reachable(false); }
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

 private:
  DeviceMemory& memory_;
};

}  // namespace

EmulatedDevice::~EmulatedDevice() {
  for (const auto& [first, bytes] : mappings_) munmap(first, bytes + page);
}

// The end of the requested memory lies as close to a page that always faults as the alignment allows. The
// address sanitizer checks the bytes in between. Spoilt pages are mapped again and again: what nobody writes costs nothing.
std::byte* EmulatedDevice::allocate(size_t bytes) {
  const size_t used = rounded_up(bytes, alignment), mapped = rounded_up(used, page);
  void* const memory = mmap(nullptr, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(memory);
  for (size_t done = 0; done < mapped; done += spoilt_bytes)
    if (mmap(first + done, std::min(spoilt_bytes, mapped - done), PROT_NONE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, spoilt_pages(), 0) == MAP_FAILED)
      throw std::bad_alloc();
  ASAN_POISON_MEMORY_REGION(first + mapped - used + bytes, used - bytes);
  mappings_[first] = mapped;
  return first + mapped - used;
}

void EmulatedDevice::release(std::byte* memory, size_t bytes) noexcept {
  const size_t used = rounded_up(bytes, alignment), mapped = rounded_up(used, page);
  std::byte* const first = memory + used - mapped;
  ASAN_UNPOISON_MEMORY_REGION(first, mapped);
  mappings_.erase(first);
  munmap(first, mapped + page);
}

size_t EmulatedDevice::held() const {
  size_t bytes = 0;
  for (const auto& [first, mapped] : mappings_) bytes += mapped;
  return bytes;
}

void EmulatedDevice::set_reachable(bool reachable) {
  for (const auto& [first, bytes] : mappings_)
    mprotect(first, bytes, reachable ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void EmulatedDevice::require_mine(const std::byte* memory, size_t bytes) const {
  auto next = mappings_.upper_bound(const_cast<std::byte*>(memory));
  require(bytes == 0 || (next != mappings_.begin() && (--next, memory + bytes <= next->first + next->second)),
          "host memory where the device's is meant");
}

void EmulatedDevice::upload(std::byte* to_device, const std::byte* from_host, size_t bytes) {
  require_mine(to_device, bytes);
  const Reach reach(*this);
  if (bytes > 0) std::memcpy(to_device, from_host, bytes);
}

void EmulatedDevice::download(std::byte* to_host, const std::byte* from_device, size_t bytes) {
  require_mine(from_device, bytes);
  const Reach reach(*this);
  if (bytes > 0) std::memcpy(to_host, from_device, bytes);
}

void EmulatedDevice::copy(std::byte* to, const std::byte* from, size_t bytes) {
  require_mine(to, bytes);
  require_mine(from, bytes);
  const Reach reach(*this);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

std::unique_ptr<Download> EmulatedDevice::start_download(const std::byte* from_device, size_t bytes) {
  return std::make_unique<FinishedDownload>(*this, from_device, bytes);
}

std::unique_ptr<Graph> EmulatedDevice::capture(const std::function<void()>&) {
  fail(ExitCode::internal, "the emulation captures nothing");
}

namespace {

// Replaces the library by plain loops. A product counts as one launch.
class PlainGemm : public cuda::Gemm {
 public:
  explicit PlainGemm(LibraryCodes codes) : codes_(codes) {}
  void multiply(device::Stream stream, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                TensorView out, cuda::BlockScales scales) override {
    ++stream->launches;
    const Reach reach(*stream->memory);
    if (size_of(x.dtype) == 1) return multiply_codes(x, weight, out, scales);
    const int64_t m = x.shape[0], n = weight.shape[0], k = x.shape[1];
    const reference::Floats xs = reference::read(x, 0, m * k), weights = reference::read(weight, 0, n * k),
                            biases = reference::read(bias, 0, bias.shape.elements());
    reference::Floats sums;
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < n; ++column)
        sums.push_back(
            reference::dot(&xs[static_cast<size_t>(row * k)], &weights[static_cast<size_t>(column * k)], k) +
            (bias.empty() ? 0 : biases[static_cast<size_t>(column)]));
    reference::write(out, 0, sums);
  }

  void prepare(ConstTensorView x, ConstTensorView /*weight*/, ConstTensorView /*bias*/, TensorView /*out*/,
               bool /*blocks*/) override {
    if (size_of(x.dtype) == 1 && codes_ == LibraryCodes::refused_later)
      fail(ExitCode::fault, "there is no algorithm");
  }

 private:
  void multiply_codes(ConstTensorView x, ConstTensorView weight, TensorView out, cuda::BlockScales scales) {
    const bool wrong = codes_ == LibraryCodes::wrong;
    if (codes_ == LibraryCodes::refused) fail(ExitCode::fault, "there is no algorithm");
    if (wrong && scales.x) ++scales.x;
    testing::multiply_codes(x, weight, scales.x, scales.weight, out);
    if (wrong && !scales.x) out.as<int32_t>()[0] += 1 << 26;
  }

  const LibraryCodes codes_;
};

}  // namespace

Backend emulated_cuda_backend(uint64_t seed, LibraryCodes codes) {
  auto device = std::make_unique<EmulatedDevice>(seed);
  auto ops = std::make_unique<cuda::CudaOps>(*device, &device->stream(), std::make_unique<PlainGemm>(codes));
  return {std::move(device), std::move(ops)};
}

}  // namespace maniple::emulation
