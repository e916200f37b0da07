#include <emulation/emulated_backend.hpp>
#include <kernels/cuda/device/cuda_check.hpp>
#include <rehearsal/stand_in_cuda.hpp>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using maniple::rehearsal::Operation;

struct CUgraph_st {
  std::vector<Operation> operations;
  std::thread::id thread = std::this_thread::get_id();
  bool spoilt = false;
};
struct CUgraphExec_st {
  std::vector<Operation> operations;
  bool uploaded = false;
};
struct CUstream_st {
  std::deque<Operation> waiting;
  uint64_t entered = 0, finished = 0;  // operations so far
  CUgraph_st* recording = nullptr;
  maniple::emulation::Order order;
  bool advancing = false;
  std::jthread driver;  // of a stream with a priority: its work runs beside the host's
};
struct CUevent_st {
  CUstream_st* stream = nullptr;  // null: never recorded
  uint64_t place = 0;             // passed when the stream has finished this many operations
  bool asked = false;
};

namespace maniple::rehearsal {

int algorithms_chosen = 0, late_uploads = 0;

namespace {

constexpr int rubbish = 0xa5;  // of pinned memory

// Allocations are aligned to their unit.
size_t in_units(size_t bytes) {
  constexpr size_t unit = 256;
  return (bytes + unit - 1) / unit * unit;
}

long number_in(const char* variable, long otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::atol(text) : otherwise;
}

// The number of the kernel that faults or hangs; 0: none.
struct Trouble {
  uint64_t fault = 0, hang = 0;

  static Trouble from_environment() {
    Trouble trouble;
    const char* const text = std::getenv("STAND_IN_TROUBLE");
    const std::string_view wish = text ? text : "";
    const auto number = [&](std::string_view kind, uint64_t& kernel) {
      if (wish.starts_with(kind))
        std::from_chars(wish.data() + kind.size(), wish.data() + wish.size(), kernel);
    };
    number("fault:", trouble.fault);
    number("hang:", trouble.hang);
    return trouble;
  }
};

// The GPU that this process uses, and the process's resources on it.
struct Gpu {
  std::recursive_mutex in_use;  // ranks may be threads
  emulation::EmulatedDevice memory;
  std::map<const std::byte*, size_t> allocations, pinned;
  std::set<CUstream_st*> streams;
  size_t used = 0;
  uint64_t kernels = 0;
  const Trouble trouble = Trouble::from_environment();
  cudaError_t broken = cudaSuccess;  // by a kernel, for good
  cudaError_t last = cudaSuccess;

  static size_t bytes() { return static_cast<size_t>(number_in("STAND_IN_MIB", 512)) << 20; }
};
Gpu& gpu() {
  static Gpu only;
  return only;
}

[[nodiscard]] auto alone() { return std::lock_guard(gpu().in_use); }

cudaError_t told(cudaError_t result) {
  if (result != cudaSuccess) gpu().last = result;
  return result;
}

cudaError_t wrong(const char* what, cudaError_t result = cudaErrorInvalidValue) {
  std::fprintf(stderr, "stand-in for CUDA: %s\n", what);
  return told(result);
}

bool lies_in(const std::map<const std::byte*, size_t>& ranges, const void* memory, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(memory);
  auto next = ranges.upper_bound(first);
  return next != ranges.begin() && (--next, first + bytes <= next->first + next->second);
}

// Called by every call that waits, allocates or releases: spoils the captures of the calling thread.
cudaError_t spoil_captures(const char* call) {
  for (CUstream_st* stream : gpu().streams)
    if (stream->recording && stream->recording->thread == std::this_thread::get_id()) {
      stream->recording->spoilt = true;
      return wrong((std::string(call) + " during a capture").c_str(), cudaErrorStreamCaptureUnsupported);
    }
  return told(gpu().broken);
}

void run_first(CUstream_st& stream) {
  const Operation operation = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  try {
    operation.run(stream.order);
  } catch (const std::exception& error) {
    gpu().broken = wrong(error.what(), cudaErrorIllegalAddress);
  }
  ++stream.finished;
}

// Runs the operations that can run. Returns whether the stream is past the place. An operation that follows another stream
// advances that one first; a stream that follows itself in a circle hangs, as on a GPU.
cudaError_t advance(CUstream_st& stream, uint64_t place) {
  const auto can_go_on = [&] {
    return stream.finished < place && gpu().broken == cudaSuccess && stream.waiting.front().can_run();
  };
  if (!std::exchange(stream.advancing, true)) {
    while (can_go_on()) {
      if (stream.waiting.front().follows) {
        run_first(stream);
        continue;
      }
      gpu().memory.set_reachable(true);
      do run_first(stream);
      while (stream.finished < place && !stream.waiting.front().follows && can_go_on());
      gpu().memory.set_reachable(false);
    }
    stream.advancing = false;
  }
  if (gpu().broken != cudaSuccess) return told(gpu().broken);
  return stream.finished < place ? cudaErrorNotReady : cudaSuccess;
}

// Work of streams with a priority goes on while the host waits for another one.
cudaError_t wait_for(CUstream_st& stream, uint64_t place) {
  cudaError_t state;
  while ((state = advance(stream, place)) == cudaErrorNotReady) {
    for (CUstream_st* beside : gpu().streams)
      if (beside->driver.joinable()) advance(*beside, beside->entered);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return state;
}

void finish_all() {
  for (CUstream_st* stream : gpu().streams) wait_for(*stream, stream->entered);
}

cudaError_t join(cudaStream_t stream, Operation operation) {
  if (gpu().broken != cudaSuccess) return told(gpu().broken);
  if (!gpu().streams.contains(stream)) return wrong("no such stream", cudaErrorInvalidResourceHandle);
  if (stream->recording) {
    stream->recording->operations.push_back(std::move(operation));
    return cudaSuccess;
  }
  stream->waiting.push_back(std::move(operation));
  ++stream->entered;
  return cudaSuccess;
}

}  // namespace

void enqueue(cudaStream_t stream, Operation operation) {
  const auto held = alone();
  cuda::check(join(stream, std::move(operation)), "joining a stream");
}

bool records(cudaStream_t stream) {
  const auto held = alone();
  return stream->recording != nullptr;
}

std::byte* allocate(size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes) == cudaSuccess ? static_cast<std::byte*>(memory) : nullptr;
}
bool release(std::byte* memory) { return cudaFree(memory) == cudaSuccess; }

void launch(cudaStream_t stream, emulation::Grid grid, int threads, size_t shared_bytes,
            std::function<void(emulation::Order&)> kernel) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cuda::check(
      emulation::is_possible(grid, threads, shared_bytes) ? cudaSuccess : cudaErrorInvalidConfiguration,
      "launching a kernel");
  const auto run = [kernel = std::move(kernel)](emulation::Order& order) {
    if (++gpu().kernels == gpu().trouble.fault)
      throw emulation::EmulationError("an illegal address, as wished");
    kernel(order);
  };
  enqueue(stream, {run, [] { return gpu().kernels + 1 != gpu().trouble.hang; }});
}

}  // namespace maniple::rehearsal

using namespace maniple::rehearsal;

// --- the GPU ---

cudaError_t cudaGetDeviceCount(int* count) {
  const auto held = alone();
  *count = static_cast<int>(number_in("STAND_IN_GPUS", 1));
  return told(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return told(gpu().broken); }
cudaError_t cudaDeviceCanAccessPeer(int* reaches, int index, int other) {
  const auto held = alone();
  *reaches = index != other && number_in("STAND_IN_PEERS", 1) != 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  const auto held = alone();
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "stand-in");
  properties->major = static_cast<int>(number_in("STAND_IN_MAJOR", 9));
  properties->multiProcessorCount = 4;
  properties->pciBusID = 1 + index;
  std::memset(properties->uuid.bytes, 0x10 + index, sizeof properties->uuid.bytes);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const auto held = alone();
  *total = Gpu::bytes();
  *free = *total - gpu().used;
  return told(gpu().broken);
}
cudaError_t cudaGetLastError() { return std::exchange(gpu().last, gpu().broken); }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "unknown error";
  }
}

// --- memory ---

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const auto held = alone();
  if (const cudaError_t result = spoil_captures("cudaMalloc"); result != cudaSuccess) return result;
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (gpu().used + bytes > Gpu::bytes()) return told(cudaErrorMemoryAllocation);
  std::byte* const first = gpu().memory.allocate(in_units(bytes));
  gpu().allocations[first] = bytes;
  gpu().used += bytes;
  *memory = first;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const auto held = alone();
  if (!memory) return cudaSuccess;
  const cudaError_t result = spoil_captures("cudaFree");
  const auto place = gpu().allocations.find(static_cast<std::byte*>(memory));
  if (place == gpu().allocations.end()) return wrong("cudaFree of what was not allocated");
  finish_all();
  gpu().memory.release(static_cast<std::byte*>(memory), in_units(place->second));
  gpu().used -= place->second;
  gpu().allocations.erase(place);
  return result;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  const auto held = alone();
  if (const cudaError_t result = spoil_captures("cudaHostAlloc"); result != cudaSuccess) return result;
  *memory = std::malloc(bytes);
  std::memset(*memory, rubbish, bytes);
  gpu().pinned[static_cast<std::byte*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const auto held = alone();
  if (!memory) return cudaSuccess;
  const cudaError_t result = spoil_captures("cudaFreeHost");
  finish_all();
  gpu().pinned.erase(static_cast<std::byte*>(memory));
  std::free(memory);
  return result;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  const auto held = alone();
  if (bytes == 0) return cudaSuccess;
  if (!lies_in(gpu().allocations, memory, bytes)) return wrong("cudaMemsetAsync outside of allocations");
  return join(stream, {[=](auto&) { std::memset(memory, value, bytes); }});
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const auto held = alone();
  if (bytes == 0) return cudaSuccess;
  const auto& targets = kind == cudaMemcpyDeviceToHost ? gpu().pinned : gpu().allocations;
  const auto& sources = kind == cudaMemcpyHostToDevice ? gpu().pinned : gpu().allocations;
  if (!lies_in(targets, to, bytes)) return wrong("a copy to memory of the wrong kind");
  if (!lies_in(sources, from, bytes)) return wrong("a copy from memory of the wrong kind");
  return join(stream, {[=](auto&) { std::memcpy(to, from, bytes); }});
}

// --- streams and events ---

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const auto held = alone();
  *stream = new CUstream_st;
  gpu().streams.insert(*stream);
  return told(gpu().broken);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  const cudaError_t result = cudaStreamCreateWithFlags(stream, flags);
  (*stream)->driver = std::jthread([stream = *stream](const std::stop_token& end) {
    while (!end.stop_requested()) {
      {
        const auto held = alone();
        advance(*stream, stream->entered);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  return result;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->driver = {};
  const auto held = alone();
  wait_for(*stream, stream->entered);
  gpu().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto held = alone();
  if (const cudaError_t result = spoil_captures("cudaStreamSynchronize"); result != cudaSuccess)
    return result;
  return wait_for(*stream, stream->entered);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const auto held = alone();
  *event = new CUevent_st;
  return told(gpu().broken);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
// Time is not emulated.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto held = alone();
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto held = alone();
  if (stream->recording) return spoil_captures("cudaEventRecord");
  *event = {stream, stream->entered};
  return told(gpu().broken);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto held = alone();
  if (const cudaError_t result = spoil_captures("cudaStreamWaitEvent"); result != cudaSuccess) return result;
  const auto passed = [source = event->stream, place = event->place] {
    return !source || !gpu().streams.contains(source) || advance(*source, place) == cudaSuccess;
  };
  return join(stream, {[](auto&) {}, passed, true});
}
// The first query always returns not ready.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto held = alone();
  if (const cudaError_t result = spoil_captures("cudaEventQuery"); result != cudaSuccess) return result;
  if (!event->stream || !gpu().streams.contains(event->stream)) return cudaSuccess;
  if (!std::exchange(event->asked, true)) return cudaErrorNotReady;
  return advance(*event->stream, event->place);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto held = alone();
  if (const cudaError_t result = spoil_captures("cudaEventSynchronize"); result != cudaSuccess) return result;
  if (!event->stream || !gpu().streams.contains(event->stream)) return cudaSuccess;
  return wait_for(*event->stream, event->place);
}

// --- graphs ---

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const auto held = alone();
  if (stream->recording) return wrong("a capture within a capture", cudaErrorIllegalState);
  stream->recording = new CUgraph_st;
  return told(gpu().broken);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto held = alone();
  *graph = std::exchange(stream->recording, nullptr);
  if (!(*graph)->spoilt) return told(gpu().broken);
  delete std::exchange(*graph, nullptr);
  return told(cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t recorded, unsigned long long) {
  const auto held = alone();
  *graph = new CUgraphExec_st{recorded->operations};
  return told(gpu().broken);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t) {
  const auto held = alone();
  if (!graph) return told(cudaErrorInvalidValue);
  graph->uploaded = true;
  return told(gpu().broken);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const auto held = alone();
  if (!std::exchange(graph->uploaded, true)) ++maniple::rehearsal::late_uploads;
  for (const Operation& operation : graph->operations)
    if (const cudaError_t result = join(stream, operation); result != cudaSuccess) return result;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const auto held = alone();
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const auto held = alone();
  finish_all();
  delete graph;
  return cudaSuccess;
}
