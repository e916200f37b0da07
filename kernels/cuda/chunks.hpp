// How kernels divide their work: eight elements a thread, moved as vectors where widths and addresses allow it; or an item a warp.
#pragma once

#include <device/primitives.hpp>

#include <algorithm>
#include <type_traits>

namespace maniple::cuda {

// Elements of a thread: sixteen bytes of a 16-bit type, twice sixteen of fp32.
constexpr int chunk_size = 8;
struct Chunk {
  float values[chunk_size];
};

// Elements [at, at + 8) of a row; those from width on are zero. aligned:
// row and `at` are aligned for vectors, and no element lies beyond width.
template <bool aligned, typename T>
__device__ Chunk load_chunk(const T* row, int64_t at, int64_t width) {
  Chunk chunk;
  if constexpr (aligned) {
    constexpr int lanes = device::Vector<T>::size;
    for (int v = 0; v < chunk_size / lanes; ++v) {
      const device::Vector<T> vector = device::load_vector(row + at + v * lanes);
      for (int i = 0; i < lanes; ++i) chunk.values[v * lanes + i] = static_cast<float>(vector.values[i]);
    }
  } else {
    for (int i = 0; i < chunk_size; ++i)
      chunk.values[i] = at + i < width ? static_cast<float>(row[at + i]) : 0.0f;
  }
  return chunk;
}

template <bool aligned, typename T>
__device__ void store_chunk(T* row, int64_t at, int64_t width, const Chunk& chunk) {
  if constexpr (aligned) {
    constexpr int lanes = device::Vector<T>::size;
    for (int v = 0; v < chunk_size / lanes; ++v) {
      device::Vector<T> vector;
      for (int i = 0; i < lanes; ++i) vector.values[i] = static_cast<T>(chunk.values[v * lanes + i]);
      device::store_vector(row + at + v * lanes, vector);
    }
  } else {
    for (int i = 0; i < chunk_size; ++i)
      if (at + i < width) row[at + i] = static_cast<T>(chunk.values[i]);
  }
}

template <typename... Pointers>
bool are_aligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}
template <typename... Pointers>
bool vectors_fit(int64_t width, Pointers... pointers) {
  return width % chunk_size == 0 && are_aligned(pointers...);
}
// Calls f with true or false as a type.
template <typename F>
void with_alignment(bool aligned, F f) {
  aligned ? f(std::true_type{}) : f(std::false_type{});
}

inline int threads_for(int64_t items, int most) {
  return static_cast<int>(std::clamp<int64_t>((items + 31) / 32 * 32, 32, most));
}
// Blocks of so many threads or warps each.
inline device::Grid blocks_of(int64_t items, int each) {
  return {static_cast<int>((items + each - 1) / each)};
}

// One thread per item.
constexpr int flat_threads = 256;
inline device::Grid flat_blocks(int64_t items) { return blocks_of(items, flat_threads); }
__device__ inline int64_t flat_index() {
  return static_cast<int64_t>(device::block_index().x) * flat_threads + device::thread_index();
}
template <typename Int>
constexpr Int chunks_of(Int width) {
  return (width + chunk_size - 1) / chunk_size;
}

// One warp per item.
__device__ inline int64_t warp_item(int warps_of_block) {
  return static_cast<int64_t>(device::block_index().x) * warps_of_block + device::warp_index();
}

}  // namespace maniple::cuda
