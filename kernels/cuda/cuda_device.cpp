#include <kernels/cuda/cuda_backend.hpp>
#include <kernels/cuda/cuda_check.hpp>
#include <kernels/cuda/cuda_device.hpp>

#include <algorithm>
#include <cstring>

namespace maniple::cuda {

namespace {

constexpr double mib = 1024.0 * 1024.0;

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i)
    text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

[[noreturn]] void no_such_gpu(int index) {
  int visible = 0;
  const cudaError_t result = cudaGetDeviceCount(&visible);
  throw Error(
      ExitCode::preflight,
      result == cudaSuccess ? fmt::format("no GPU number {}: {} visible", index, visible)
                            : fmt::format("no GPU is visible: {}", cudaGetErrorString(result)),
      "the cuda backend needs an NVIDIA GPU and its driver for each process",
      "run on a GPU node (nvidia-smi must list the GPU, CUDA_VISIBLE_DEVICES must not hide it), or use "
      "--backend cpu");
}

}  // namespace

int visible_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

CudaDevice::CudaDevice(int index) {
  if (index >= visible_gpus()) no_such_gpu(index);
  check(cudaSetDevice(index), "choosing the GPU");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
  uuid_ = uuid_text(properties.uuid);
  description_ = fmt::format("cuda, {}, {}, {} SMs", properties.name, uuid_, properties.multiProcessorCount);
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  stream_.reset(stream);
  for (Staging& staging : staging_) {
    void* memory;
    check(cudaHostAlloc(&memory, staging_bytes, cudaHostAllocDefault), "allocating pinned memory");
    staging.memory.reset(static_cast<std::byte*>(memory));
    cudaEvent_t copied;
    check(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming), "creating an event");
    staging.copied.reset(copied);
  }
}

std::byte* CudaDevice::allocate(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();  // the refusal is told below and must not fail the next call
    throw Error(ExitCode::preflight,
                fmt::format("cannot allocate {:.1f} MiB on the GPU: {:.1f} MiB are free",
                            static_cast<double>(bytes) / mib, static_cast<double>(free_memory()) / mib),
                "weights, KV cache and workspace of this rank must fit in its memory",
                "use a smaller KV cache, or more ranks (--tp)");
  }
  check(cudaMemsetAsync(memory, 0, bytes, stream()), "clearing memory");
  return static_cast<std::byte*>(memory);
}

void CudaDevice::release(std::byte* memory, size_t) noexcept { cudaFree(memory); }

size_t CudaDevice::free_memory() const {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

CudaDevice::Staging& CudaDevice::next_staging() {
  Staging& staging = staging_[turn_++ % staging_.size()];
  check(cudaEventSynchronize(staging.copied.get()), "waiting for a copy");
  return staging;
}

void CudaDevice::upload(std::byte* to_device, const std::byte* from_host, size_t bytes) {
  for (size_t done = 0; done < bytes; done += staging_bytes) {
    const size_t part = std::min(staging_bytes, bytes - done);
    Staging& staging = next_staging();
    std::memcpy(staging.memory.get(), from_host + done, part);
    check(cudaMemcpyAsync(to_device + done, staging.memory.get(), part, cudaMemcpyHostToDevice, stream()),
          "copying to the GPU");
    check(cudaEventRecord(staging.copied.get(), stream()), "recording an event");
  }
}

void CudaDevice::download(std::byte* to_host, const std::byte* from_device, size_t bytes) {
  for (size_t done = 0; done < bytes; done += staging_bytes) {
    const size_t part = std::min(staging_bytes, bytes - done);
    Staging& staging = next_staging();
    check(cudaMemcpyAsync(staging.memory.get(), from_device + done, part, cudaMemcpyDeviceToHost, stream()),
          "copying from the GPU");
    synchronize();
    std::memcpy(to_host + done, staging.memory.get(), part);
  }
}

void CudaDevice::synchronize() { check(cudaStreamSynchronize(stream()), "waiting for the GPU"); }

}  // namespace maniple::cuda
