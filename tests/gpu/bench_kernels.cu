#include <device/primitives.hpp>
#include <gpu/bench_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace maniple::bench {

using namespace device;

namespace {

constexpr int threads = 512;

__device__ int64_t flat_index() {
  return static_cast<int64_t>(block_index().x) * block_threads() + thread_index();
}
__device__ int64_t flat_size() { return static_cast<int64_t>(grid_size().x) * block_threads(); }

// In [-1, 1), by place and seed.
__device__ float uniform(int64_t place, uint32_t seed) {
  uint32_t bits = (static_cast<uint32_t>(place) ^ seed) * 0x9e3779b9u;
  bits = (bits ^ bits >> 16) * 0x85ebca6bu;
  return static_cast<float>(static_cast<int32_t>(bits ^ bits >> 13)) * 0x1p-31f;
}

__global__ void __launch_bounds__(threads) fill_vectors(bf16* values, int64_t vectors, uint32_t seed) {
  for (int64_t v = flat_index(); v < vectors; v += flat_size()) {
    Vector<bf16> vector;
    for (int i = 0; i < 8; ++i) {
      const auto bits = __builtin_bit_cast(uint16_t, static_cast<bf16>(uniform(8 * v + i, seed)));
      vector.values[i] = __builtin_bit_cast(bf16, static_cast<uint16_t>(bits & 0xfffeu));
    }
    store_vector(values + 8 * v, vector);
  }
}

__global__ void __launch_bounds__(threads)
    fill_normal(float* values, int64_t count, float deviation, uint32_t seed) {
  for (int64_t i = flat_index(); i < count; i += flat_size()) {
    const float radius = sqrtf(-2 * logf(0.5f + 0.499999f * uniform(i, seed)));
    values[i] = deviation * radius * cosf(3.14159265f * uniform(i, ~seed));
  }
}

// Data that is read once is not kept in L1.
__device__ Vector<uint32_t> load_once(const uint32_t* from) {
#ifdef __CUDACC__
  Vector<uint32_t> loaded;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(loaded.values[0]), "=r"(loaded.values[1]), "=r"(loaded.values[2]),
                 "=r"(loaded.values[3])
               : "l"(from));
  return loaded;
#else
  return load_vector(from);
#endif
}

// Eight loads of a thread are in flight at once.
__global__ void __launch_bounds__(threads)
    read_vectors(const uint32_t* data, int64_t vectors, uint32_t* sink) {
  constexpr int unrolled = 8;
  uint32_t sum = 0;
  for (int64_t v = flat_index(); v < vectors; v += unrolled * flat_size()) {
    Vector<uint32_t> loaded[unrolled] = {};
    for (int i = 0; i < unrolled; ++i)
      if (v + i * flat_size() < vectors) loaded[i] = load_once(data + 4 * (v + i * flat_size()));
    for (const auto& vector : loaded)
      sum ^= vector.values[0] ^ vector.values[1] ^ vector.values[2] ^ vector.values[3];
  }
  if (sum == 0x12345678u) *sink = sum;
}

__global__ void do_nothing() {}

#ifdef __CUDACC__
__device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// now, most [multiprocessors]: blocks that run, and most of them at once. Long enough that all blocks that fit have started.
__global__ void count_residents(int* now, int* most) {
  if (thread_index() == 0) {
    uint32_t here;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(here));
    atomicMax(most + here, atomicAdd(now + here, 1) + 1);
    for (const uint64_t start = nanoseconds(); nanoseconds() - start < 500'000;) {
    }
    atomicAdd(now + here, -1);
  }
  synchronize_block();
}
#endif

}  // namespace

void fill_random(Stream stream, void* values, int64_t count, uint32_t seed) {
  launch(fill_vectors, {resident_blocks(fill_vectors, threads, 0)}, threads, 0, stream,
         static_cast<bf16*>(values), count / 8, seed);
}

void fill_logits(Stream stream, float* logits, int64_t count, uint32_t seed) {
  launch(fill_normal, {resident_blocks(fill_normal, threads, 0)}, threads, 0, stream, logits, count, 3.0f,
         seed);
}

void read_all(Stream stream, const void* data, int64_t bytes, uint32_t* sink) {
  launch(read_vectors, {resident_blocks(read_vectors, threads, 0)}, threads, 0, stream,
         static_cast<const uint32_t*>(data), bytes / 16, sink);
}

#ifdef __CUDACC__
std::string blocks_of(Stream stream, CUgraph_st* graph) {
  const auto check = [](cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
  };
  size_t count = 1;
  cudaGraphNode_t node;
  cudaKernelNodeParams kernel{};
  check(cudaGraphGetNodes(graph, &node, &count));
  check(cudaGraphKernelNodeGetParams(node, &kernel));
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel.func));
  const int threads = static_cast<int>(kernel.blockDim.x), bytes = static_cast<int>(kernel.sharedMemBytes);
  int queried = 0, waiting = 0, device = 0, multiprocessors = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&queried, kernel.func, threads, kernel.sharedMemBytes));
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));

  check(cudaFuncSetAttribute(count_residents, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  check(cudaFuncSetAttribute(count_residents, cudaFuncAttributePreferredSharedMemoryCarveout,
                             attributes.preferredShmemCarveout));
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&waiting, count_residents, threads,
                                                      kernel.sharedMemBytes));
  std::vector<int> most(2 * static_cast<size_t>(multiprocessors));
  int* counters = nullptr;
  check(cudaMalloc(&counters, most.size() * sizeof(int)));
  check(cudaMemsetAsync(counters, 0, most.size() * sizeof(int), stream));
  count_residents<<<waiting * multiprocessors, threads, kernel.sharedMemBytes, stream>>>(
      counters, counters + multiprocessors);
  check(cudaGetLastError());
  check(cudaMemcpyAsync(most.data(), counters, most.size() * sizeof(int), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  check(cudaFree(counters));
  std::string text;
  const auto say = [&](const char* name, int64_t value) {
    text += (text.empty() ? "\"" : ", \"") + std::string(name) + "\": " + std::to_string(value);
  };
  say("threads", threads), say("shared_bytes", bytes), say("grid", kernel.gridDim.x);
  say("registers", attributes.numRegs), say("local_bytes", static_cast<int64_t>(attributes.localSizeBytes));
  say("binary", attributes.binaryVersion), say("queried", queried), say("waiting_queried", waiting);
  say("observed", *std::max_element(most.begin() + multiprocessors, most.end()));
  return text;
}
#else
std::string blocks_of(Stream, CUgraph_st*) { return "\"observed\": \"not observed\""; }
#endif

void idle(Stream stream) { launch(do_nothing, {1}, 32, 0, stream); }

}  // namespace maniple::bench
