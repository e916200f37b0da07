#include <kernels/cuda/architectures.hpp>
#include <kernels/cuda/cuda_backend.hpp>
#include <kernels/cuda/cuda_device.hpp>
#include <kernels/cuda/device/cuda_check.hpp>
#include <kernels/support/number_text.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace maniple::cuda {

namespace {

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i)
    text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

std::string bus_text(const cudaDeviceProp& properties) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                     properties.pciDeviceID);
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
      "`backend` cpu");
}

std::pair<size_t, size_t> free_and_total() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for the GPU's memory");
  return {free, total};
}

using GraphHandle = PlainHandle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = PlainHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraph_t recorded, cudaStream_t stream) : stream_(stream) {
    cudaGraphExec_t exec;
    check(cudaGraphInstantiate(&exec, recorded, 0), "making a graph");
    exec_.reset(exec);
    check(cudaGraphUpload(exec, stream),
          "sending a graph to the GPU");  // else the first replay does, in the middle of a run
  }
  void replay() override { check(cudaGraphLaunch(exec_.get(), stream_), "launching a graph"); }

 private:
  cudaStream_t stream_;
  UniqueHandle<GraphExecHandle> exec_;
};

}  // namespace

// Returns its staging memory to the device. The next user's copy joins the stream after this one.
class CudaDevice::CudaDownload final : public Download {
 public:
  CudaDownload(std::vector<Staging>& spare, Staging staging, size_t bytes)
      : spare_(spare), staging_(std::move(staging)), bytes_(bytes) {}
  ~CudaDownload() override { spare_.push_back(std::move(staging_)); }
  bool ready() override {
    const cudaError_t state = cudaEventQuery(staging_.copied.get());
    if (state != cudaErrorNotReady) check(state, "asking for a copy");
    return state == cudaSuccess;
  }
  std::span<const std::byte> wait() override {
    check(cudaEventSynchronize(staging_.copied.get()), "waiting for a copy");
    return {staging_.memory.get(), bytes_};
  }

 private:
  std::vector<Staging>& spare_;
  Staging staging_;
  size_t bytes_;
};

int visible_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::vector<GpuIdentity> identify_gpus() {
  std::vector<GpuIdentity> gpus(static_cast<size_t>(visible_gpus()));
  for (size_t index = 0; index < gpus.size(); ++index) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, static_cast<int>(index)), "asking for the GPU's properties");
    gpus[index] = {uuid_text(properties.uuid), bus_text(properties), {}};
  }
  for (size_t index = 0; index < gpus.size(); ++index)
    for (size_t other = 0; other < gpus.size(); ++other) {
      int reaches = 0;
      check(cudaDeviceCanAccessPeer(&reaches, static_cast<int>(index), static_cast<int>(other)),
            "asking which GPUs reach each other");
      if (reaches) gpus[index].peers.push_back(gpus[other].uuid);
    }
  return gpus;
}

UniqueEvent make_event() {
  cudaEvent_t event;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  return UniqueEvent(event);
}

Staging::Staging(size_t size) : bytes(size) {
  void* pinned;
  check(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), "allocating pinned memory");
  memory.reset(static_cast<std::byte*>(pinned));
  copied = make_event();
}

CudaDevice::CudaDevice(int index) {
  if (index >= visible_gpus()) no_such_gpu(index);
  check(cudaSetDevice(index), "choosing the GPU");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
  if (properties.major < 8)
    throw Error(
        ExitCode::preflight,
        fmt::format("{} has compute capability {}.{}", properties.name, properties.major, properties.minor),
        "the kernels need 8.0 (Ampere) or newer", "ask for newer GPUs, or use `backend` cpu");
  if (!has_code_for(MANIPLE_CUDA_ARCHITECTURES, properties.major, properties.minor))
    throw Error(ExitCode::preflight,
                fmt::format("this build has GPU code for {}, and {} has compute capability {}.{}",
                            MANIPLE_CUDA_ARCHITECTURES, properties.name, properties.major, properties.minor),
                "no kernel would start on it",
                fmt::format("build for it: cmake --preset release -DCMAKE_CUDA_ARCHITECTURES={}{}-real",
                            properties.major, properties.minor));
  uuid_ = uuid_text(properties.uuid);
  bus_ = bus_text(properties);
  description_ = fmt::format("cuda, {}, {}, {} SMs", properties.name, uuid_, properties.multiProcessorCount);
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  stream_.reset(stream);
  for (int i = 0; i < 2; ++i) staging_.emplace_back(staging_bytes);
}

std::byte* CudaDevice::allocate(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();  // clears the error: the text below reports it
    throw Error(ExitCode::preflight,
                fmt::format("cannot allocate {} on the GPU: {} are free", bytes_text(bytes),
                            bytes_text(free_memory())),
                "weights, KV cache and workspace of this rank must fit in its memory",
                "use a smaller KV cache, or more ranks (`tensor_size`)");
  }
  return static_cast<std::byte*>(memory);
}

void CudaDevice::release(std::byte* memory, size_t) noexcept { cudaFree(memory); }

size_t CudaDevice::free_memory() const { return free_and_total().first; }
size_t CudaDevice::total_memory() const { return free_and_total().second; }

Staging& CudaDevice::next_staging() {
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

void CudaDevice::clear(std::byte* memory, size_t bytes) {
  if (bytes > 0) check(cudaMemsetAsync(memory, 0, bytes, stream()), "clearing memory");
}

void CudaDevice::copy(std::byte* to, const std::byte* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()), "copying on the GPU");
}

std::unique_ptr<Download> CudaDevice::start_download(const std::byte* from_device, size_t bytes) {
  if (spare_.empty() || spare_.back().bytes < bytes)
    spare_.emplace_back(std::bit_ceil(std::max<size_t>(bytes, 64 << 10)));
  Staging staging = std::move(spare_.back());
  spare_.pop_back();
  check(cudaMemcpyAsync(staging.memory.get(), from_device, bytes, cudaMemcpyDeviceToHost, stream()),
        "copying from the GPU");
  check(cudaEventRecord(staging.copied.get(), stream()), "recording an event");
  return std::make_unique<CudaDownload>(spare_, std::move(staging), bytes);
}

std::unique_ptr<Graph> CudaDevice::capture(const std::function<void()>& work) {
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "starting a capture");
  cudaGraph_t recorded = nullptr;
  try {
    work();
  } catch (...) {
    if (cudaStreamEndCapture(stream(), &recorded) == cudaSuccess) cudaGraphDestroy(recorded);
    throw;
  }
  check(cudaStreamEndCapture(stream(), &recorded), "ending a capture");
  const UniqueHandle<GraphHandle> owned(recorded);
  return std::make_unique<CudaGraph>(recorded, stream());
}

void CudaDevice::synchronize() { check(cudaStreamSynchronize(stream()), "waiting for the GPU"); }

}  // namespace maniple::cuda
