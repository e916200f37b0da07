// How elementwise kernels divide rows: eight elements a thread, moved as vectors where widths and addresses allow it.
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
bool vectors_fit(int64_t width, Pointers... pointers) {
  return width % chunk_size == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}
// Calls f with true or false as a type.
template <typename F>
void with_alignment(bool aligned, F f) {
  aligned ? f(std::true_type{}) : f(std::false_type{});
}

constexpr int flat_threads = 256;
struct FlatGrid {
  device::Grid grid;
  int threads;
};
// One thread per chunk.
inline FlatGrid flat_grid(int64_t chunks) {
  const int threads = static_cast<int>(std::clamp<int64_t>((chunks + 31) / 32 * 32, 32, flat_threads));
  return {{static_cast<int>((chunks + threads - 1) / threads)}, threads};
}
__device__ inline int64_t flat_index() {
  return static_cast<int64_t>(device::block_index().x) * device::block_threads() + device::thread_index();
}
__device__ inline int chunks_of(int width) { return (width + chunk_size - 1) / chunk_size; }

inline int threads_for(int64_t items, int most) {
  return static_cast<int>(std::clamp<int64_t>((items + 31) / 32 * 32, 32, most));
}

}  // namespace maniple::cuda
