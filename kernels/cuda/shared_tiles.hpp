// Tiles of 16-bit elements in shared memory, as tensor cores read them.
#pragma once

#include <device/primitives.hpp>

namespace maniple::cuda {

// Chunks are 16 bytes, 8 elements. Where chunk `chunk` of row `row` of a tile lies, in elements: within each
// `chunk_period` of them the chunks of a row change places, so that a column of chunks over eight rows meets
// every bank once.
template <int columns>
constexpr int chunk_period = columns % 64 == 0   ? 8
                             : columns % 32 == 0 ? 4
                                                 : 2;
template <int columns>
__device__ constexpr int swizzled(int row, int chunk) {
  constexpr int period = chunk_period<columns>;
  return row * columns + (chunk ^ row / (8 / period) % period) * 8;
}

// A warp fetches rows that lie side by side into a tile; from row `valid` on they are zero and are not read.
template <int rows, int columns, typename T>
__device__ void copy_rows(T* tile, const T* from, int valid) {
  constexpr int period = chunk_period<columns>;
  const int lane = device::lane_index();
  for (int row = lane / period; row < rows; row += 32 / period)
    for (int chunk = lane % period; chunk < columns / 8; chunk += period)
      device::copy_async(tile + swizzled<columns>(row, chunk), from + row * columns + 8 * chunk, row < valid);
}

}  // namespace maniple::cuda
