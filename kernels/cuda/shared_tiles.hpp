// Tiles of 16-bit elements in shared memory, as tensor cores read them.
#pragma once

#include <device/primitives.hpp>
#include <kernels/cuda/widen.hpp>

namespace maniple::cuda {

// A chunk is 16 bytes, 8 elements. swizzled() is the offset of a chunk in a tile, in elements. It permutes
// each `chunk_period` chunks of a row, so a column of chunks over eight rows meets every bank once.
template <int columns>
constexpr int chunk_period = columns % 64 == 0   ? 8
                             : columns % 32 == 0 ? 4
                                                 : 2;
template <int columns>
__device__ constexpr int swizzled(int row, int chunk) {
  constexpr int period = chunk_period<columns>;
  return row * columns + (chunk ^ row / (8 / period) % period) * 8;
}

// A warp copies contiguous rows into a tile. Rows from `valid` on become zero and are not read.
template <int rows, int columns, typename T>
__device__ void copy_rows(T* tile, const T* from, int valid) {
  constexpr int period = chunk_period<columns>;
  const int lane = device::lane_index();
  for (int row = lane / period; row < rows; row += 32 / period)
    for (int chunk = lane % period; chunk < columns / 8; chunk += period)
      device::copy_async(tile + swizzled<columns>(row, chunk), from + row * columns + 8 * chunk, row < valid);
}

// The same for codes, which stay in their order. Each lane then widens what it has copied, into a tile of elements.
template <int rows, int columns>
__device__ void copy_rows(Float8* tile, const Float8* from, int valid) {
  for (int i = device::lane_index(); i < rows * columns / 16; i += 32)
    device::copy_async(tile + 16 * i, from + 16 * i, 16 * i / columns < valid);
}
template <int rows, int columns, typename T>
__device__ void widen_rows(T* tile, const Float8* codes) {
  for (int i = device::lane_index(); i < rows * columns / 16; i += 32) {
    widen_e4m3<T>(device::load_vector(reinterpret_cast<const uint32_t*>(codes) + 4 * i),
                  [&](int half, const Eight& eight) {
                    T* const to = tile + swizzled<columns>(16 * i / columns, i % (columns / 16) * 2 + half);
                    device::store_vector(reinterpret_cast<uint32_t*>(to), eight);
                  });
  }
}

}  // namespace maniple::cuda
