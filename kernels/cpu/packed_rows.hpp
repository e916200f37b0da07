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

// The units of one row of packed activations: each run of the weight's columns is padded to whole words.
struct PackedRow {
  PanelLayout words;
  int x_units;  // in a word

  int64_t units_of(int64_t run_columns) const { return words.row_units(run_columns) * x_units; }
  int64_t units_of(const WeightShape& shape) const {
    int64_t units = 0;
    for (int64_t column = 0, end; column < shape.columns; column = end) {
      end = shape.run_end(column);
      units += units_of(end - column);
    }
    return units;
  }
};

// Packs rows of x as the tiles that matmul_kernel.hpp describes. x need not be aligned to units: K may be
// odd, or its rows longer than those of the weight. index: the row of x for each row of the product; null: the same.
class ActivationPacker {
 public:
  ActivationPacker(ConstTensorView x, const WeightShape& weight, const PackedRow& row, const RowTiles& tiles,
                   uint32_t* packed, const int32_t* index = nullptr)
      : x_(x.data),
        index_(index),
        weight_(weight),
        row_(row),
        tiles_(tiles),
        element_(size_of(x.dtype)),
        row_bytes_(element_ * static_cast<size_t>(x.shape[1])),
        row_units_(row.units_of(weight)),
        packed_(packed) {}

  // widens: x is bf16, units are fp32.
  template <int step, bool widens = false>
  void pack(int64_t tile) const {
    constexpr size_t unit = widens ? 2 : 4;  // bytes of x
    const int64_t first = tiles_.first_row(tile);
    const int rows = static_cast<int>(tiles_.first_row(tile + 1) - first);
    const int padded = (rows + tiles_.row_step - 1) & -tiles_.row_step;
    uint32_t* to = packed_ + first * row_units_;
    const std::byte* from[max_tile_rows];
    for (int r = 0; r < rows; ++r)
      from[r] = x_ + static_cast<size_t>(index_ ? index_[first + r] : first + r) * row_bytes_;
    for (int64_t column = 0, run_end; column < weight_.columns; column = run_end) {
      run_end = weight_.run_end(column);
      size_t at = static_cast<size_t>(column) * element_;
      const size_t end = static_cast<size_t>(run_end) * element_;
      uint32_t* const next = to + row_.units_of(run_end - column) * padded;
      if constexpr (step == 1)
        for (; at + 4 * unit <= end; at += 4 * unit, to += 4 * rows) transpose<widens>(from, at, rows, to);
      for (; at < end; at += step * unit, to += padded * step)
        copy_step<widens>(from, at, rows, padded, std::min(end - at, step * unit), to, step);
      std::fill(to, next, 0u);
      to = next;
    }
  }

 private:
  using Words = uint32_t __attribute__((vector_size(16)));

  template <bool widens>
  static Words four_units(const std::byte* from) {
    if constexpr (widens) {
      uint16_t bits __attribute__((vector_size(8)));
      std::memcpy(&bits, from, 8);
      return __builtin_convertvector(bits, Words) << 16;
    }
    Words units;
    std::memcpy(&units, from, 16);
    return units;
  }

  // to[4][rows]: four units of every row.
  template <bool widens>
  static void transpose(const std::byte* const* from, size_t at, int rows, uint32_t* to) {
    int r = 0;
    for (; r + 4 <= rows; r += 4) {
      Words row[4];
      for (int i = 0; i < 4; ++i) row[i] = four_units<widens>(from[r + i] + at);
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
    for (; r < rows; ++r) {
      const Words units = four_units<widens>(from[r] + at);
      for (int u = 0; u < 4; ++u) to[u * rows + r] = units[u];
    }
  }

  // A widened unit is the upper half of a float.
  template <bool widens>
  static void copy_step(const std::byte* const* from, size_t at, int rows, int padded, size_t bytes,
                        uint32_t* to, int step) {
    if (rows < padded || bytes < static_cast<size_t>(step) * 4)
      std::memset(to, 0, static_cast<size_t>(padded * step) * 4);
    for (int r = 0; r < rows; ++r, to += step)
      std::memcpy(reinterpret_cast<std::byte*>(to) + (widens ? 2 : 0), from[r] + at, bytes);
  }

  const std::byte* x_;
  const int32_t* index_;
  const WeightShape& weight_;
  PackedRow row_;
  RowTiles tiles_;
  size_t element_, row_bytes_;
  int64_t row_units_;
  uint32_t* packed_;
};

// Divides a product into items for the threads: blocks of rows whose activations fit a cache, times panels. Block
// sizes differ by at most one tile. A product with few panels gets more blocks.
struct Division {
  int64_t row_blocks, panels, grain;

  Division(const RowTiles& tiles, const Weight& weight, int64_t row_bytes, int threads)
      : panels(panels_of(weight.rows)) {
    // Bytes of x. Vectors read 2 bytes of it a cycle, which the third cache sustains; tiles of AMX read 32.
    const int64_t cache_share = tiles.row_step > 1 ? 512 << 10 : 4 << 20;
    constexpr int64_t least_work = 256 << 10;  // bytes of weights worth a thread, about 10 us
    constexpr int64_t free_rows = 16;          // up to this many cost no more than reading the weights
    const int64_t tiles_in_block = std::max<int64_t>(1, cache_share / (tiles.tile_rows * row_bytes));
    const int64_t wanted = (4 * threads + panels - 1) / panels;
    row_blocks =
        std::min(tiles.count(), std::max(wanted, (tiles.count() + tiles_in_block - 1) / tiles_in_block));
    const int64_t item = panel_units(weight) * 4 * std::max<int64_t>(1, tiles.rows / row_blocks / free_rows);
    grain = (least_work + item - 1) / item;
  }
  int64_t first_tile(const RowTiles& tiles, int64_t row_block) const {
    return tiles.count() * row_block / row_blocks;
  }
};

// Items are ordered by row block, then panel: a range of items is a few runs of panels.
template <typename Run>
void for_each_run(IndexRange items, int64_t panels, Run run) {
  while (items.size() > 0) {
    const int64_t row_block = items.begin / panels, first = items.begin % panels;
    const int64_t count = std::min(panels - first, items.size());
    run(row_block, first, count);
    items.begin += count;
  }
}

}  // namespace maniple::cpu
