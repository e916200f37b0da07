// Tiles of 16-bit elements in shared memory, as tensor cores read them.
#pragma once

#include <device/primitives.hpp>
#include <kernels/cuda/widen.hpp>

#include <functional>

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

// A warp copies contiguous rows into a tile. Rows from `valid` on become zero and are not read. The swizzle repeats after eight rows, so
// that all places are two of a lane's and constants.
template <int rows, int columns, typename T>
__device__ void copy_rows(T* tile, const T* from, int valid, int lane = device::lane_index()) {
  constexpr int period = chunk_period<columns>, together = 32 / period;  // rows
  static_assert(rows % together == 0);
  const int row = lane / period, chunk = lane % period;
  T* const places[2] = {tile + swizzled<columns>(row, chunk),
                        tile + swizzled<columns>(row + together, chunk)};
  from += row * columns + 8 * chunk;
  for (int i = 0; i < rows / together; ++i)
    for (int j = 0; j < columns / 8 / period; ++j)
      device::copy_async(places[i % 2] + i / 2 * 2 * together * columns + 8 * j * period,
                         from + i * together * columns + 8 * j * period, row + i * together < valid);
}

// The same for codes, which stay in their order. Each lane then widens what it has copied, into a tile of elements.
template <int rows, int columns>
__device__ void copy_rows(Float8* tile, const Float8* from, int valid, int lane = device::lane_index()) {
  for (int turn = 0; turn < (rows * columns / 16 + 31) / 32; ++turn) {
    const int i = 32 * turn + lane;
    if (i < rows * columns / 16) device::copy_async(tile + 16 * i, from + 16 * i, 16 * i / columns < valid);
  }
}
template <int rows, int columns, typename T>
__device__ void widen_rows(T* tile, const Float8* codes) {
  for (int turn = 0; turn < (rows * columns / 16 + 31) / 32; ++turn) {
    const int i = 32 * turn + device::lane_index();
    if (i >= rows * columns / 16) return;
    widen_e4m3<T>(device::load_vector(reinterpret_cast<const uint32_t*>(codes) + 4 * i), std::identity{},
                  [&](int half, const Eight& eight) {
                    T* const to = tile + swizzled<columns>(16 * i / columns, i % (columns / 16) * 2 + half);
                    device::store_vector(reinterpret_cast<uint32_t*>(to), eight);
                  });
  }
}

}  // namespace maniple::cuda
