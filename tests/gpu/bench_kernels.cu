#include <device/primitives.hpp>
#include <gpu/bench_kernels.hpp>

namespace maniple::bench {

using namespace device;

namespace {

constexpr int threads = 512;

__device__ int64_t flat_index() {
  return static_cast<int64_t>(block_index().x) * block_threads() + thread_index();
}
__device__ int64_t flat_size() { return static_cast<int64_t>(grid_size().x) * block_threads(); }

__global__ void __launch_bounds__(threads) fill_vectors(bf16* values, int64_t vectors, uint32_t seed) {
  for (int64_t v = flat_index(); v < vectors; v += flat_size()) {
    Vector<bf16> vector;
    for (int i = 0; i < 8; ++i) {
      uint32_t bits = (static_cast<uint32_t>(8 * v + i) ^ seed) * 0x9e3779b9u;
      bits = (bits ^ bits >> 16) * 0x85ebca6bu;
      vector.values[i] =
          static_cast<bf16>(static_cast<float>(static_cast<int32_t>(bits ^ bits >> 13)) * 0x1p-31f);
    }
    store_vector(values + 8 * v, vector);
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

}  // namespace

void fill_random(Stream stream, void* values, int64_t count, uint32_t seed) {
  launch(fill_vectors, {resident_blocks(fill_vectors, threads, 0)}, threads, 0, stream,
         static_cast<bf16*>(values), count / 8, seed);
}

void read_all(Stream stream, const void* data, int64_t bytes, uint32_t* sink) {
  launch(read_vectors, {resident_blocks(read_vectors, threads, 0)}, threads, 0, stream,
         static_cast<const uint32_t*>(data), bytes / 16, sink);
}

void idle(Stream stream) { launch(do_nothing, {1}, 32, 0, stream); }

}  // namespace maniple::bench
