// What products share: the panels of a packed weight, and activations packed for the kernels.
#pragma once

#include <kernels/cpu/path_kernels.hpp>
#include <kernels/weight.hpp>

#include <algorithm>
#include <cstring>

namespace maniple::cpu {

inline int64_t panels_of(int64_t rows) { return (rows + panel_width - 1) / panel_width; }
inline int64_t panel_units(const Weight& weight) {
  return weight.packed.shape()[1] * weight.packed.shape()[2];
}
inline const uint32_t* units_of(const Weight& weight) {
  return reinterpret_cast<const uint32_t*>(weight.packed.view().data);
}

// Packs rows of x as the tiles that matmul_kernel.hpp describes. x need not be aligned to units: K may be
// odd. index: the row of x for each row of the product; null: the same.
class ActivationPacker {
 public:
  ActivationPacker(ConstTensorView x, const Weight& weight, const RowTiles& tiles, uint32_t* packed,
                   const int32_t* index = nullptr)
      : x_(x.data),
        index_(index),
        tiles_(tiles),
        slices_(weight.slices),
        slice_bytes_(static_cast<size_t>(weight.slice_columns()) * size_of(x.dtype)),
        row_bytes_(slice_bytes_ * static_cast<size_t>(weight.slices)),
        slice_units_(weight.packed.shape()[2] / panel_width),
        packed_(packed) {}

  template <int step>
  void pack(int64_t tile) const {
    const int64_t first = tiles_.first_row(tile);
    const int rows = static_cast<int>(tiles_.first_row(tile + 1) - first);
    const int padded = (rows + tiles_.row_step - 1) & -tiles_.row_step;
    uint32_t* to = packed_ + first * slice_units_ * slices_;
    const std::byte* from[max_tile_rows];
    for (int r = 0; r < rows; ++r)
      from[r] = x_ + static_cast<size_t>(index_ ? index_[first + r] : first + r) * row_bytes_;
    for (int slice = 0; slice < slices_; ++slice) {
      size_t at = static_cast<size_t>(slice) * slice_bytes_;
      const size_t end = at + slice_bytes_;
      if constexpr (step == 1)
        for (; at + 16 <= end; at += 16, to += 4 * rows) transpose(from, at, rows, to);
      for (; at < end; at += step * 4, to += padded * step)
        copy_step(from, at, rows, padded, std::min<size_t>(end - at, step * 4), to, step);
    }
  }

 private:
  using Words = uint32_t __attribute__((vector_size(16)));

  // to[4][rows]: four units of every row.
  static void transpose(const std::byte* const* from, size_t at, int rows, uint32_t* to) {
    int r = 0;
    for (; r + 4 <= rows; r += 4) {
      Words row[4];
      for (int i = 0; i < 4; ++i) std::memcpy(&row[i], from[r + i] + at, 16);
      const Words low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
      const Words low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
      const Words high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
      const Words high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
      const Words units[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                              __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                              __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                              __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (int u = 0; u < 4; ++u) std::memcpy(to + u * rows + r, &units[u], 16);
    }
    for (; r < rows; ++r)
      for (int u = 0; u < 4; ++u) std::memcpy(to + u * rows + r, from[r] + at + u * 4, 4);
  }

  static void copy_step(const std::byte* const* from, size_t at, int rows, int padded, size_t bytes,
                        uint32_t* to, int step) {
    if (rows < padded || bytes < static_cast<size_t>(step) * 4)
      std::memset(to, 0, static_cast<size_t>(padded * step) * 4);
    for (int r = 0; r < rows; ++r, to += step) std::memcpy(to, from[r] + at, bytes);
  }

  const std::byte* x_;
  const int32_t* index_;
  RowTiles tiles_;
  int slices_;
  size_t slice_bytes_, row_bytes_;
  int64_t slice_units_;
  uint32_t* packed_;
};

}  // namespace maniple::cpu
