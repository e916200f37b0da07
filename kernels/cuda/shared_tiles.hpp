// Tiles of 16-bit elements in shared memory, as tensor cores read them.
#pragma once

#include <device/primitives.hpp>

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

}  // namespace maniple::cuda
