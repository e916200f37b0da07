// The interface of the matmul's instruction paths: one block of work, and the functions that compute it.
//
// A packed weight is a row of panels of 32 weight rows (output columns). Its smallest piece is a
// unit of 32 bits: two bf16 adjacent in K, or one fp32. Every reduction slice of a panel is
// zero-padded to the path's K step; PanelLayout in path_kernels.hpp gives the order. Activations
// are packed before the product: tile after tile of RowTiles, each [slice][units / step][rows][step]
// with the same padding of a slice. A kernel reads both sides from first to last.
#pragma once

#include <cstddef>
#include <cstdint>

namespace maniple::cpu {

constexpr int panel_width = 32;
constexpr int max_slices = 255;
constexpr int max_tile_rows = 32;  // of any path

// The rows of x as tiles of at most tile_rows and of about equal size: a small tile would leave units idle. A
// tile starts at a multiple of row_step and is zero-padded to one.
struct RowTiles {
  int64_t rows;
  int tile_rows, row_step;  // row_step: a power of two that divides tile_rows

  int64_t count() const { return (rows + tile_rows - 1) / tile_rows; }
  int64_t first_row(int64_t tile) const {
    const int64_t row = (rows * tile / count() + row_step - 1) & -row_step;
    return row < rows ? row : rows;
  }
  int64_t padded_rows() const { return (rows + row_step - 1) & -row_step; }
};

// out[tiles, panels] = x[tiles, K] * panels^T. Each slice of K is summed
// on its own. A binary tree adds the slices, then comes the bias.
struct MatmulBlock {
  const uint32_t* x;  // packed activations of all tiles
  RowTiles tiles;
  int64_t first_tile, end_tile;  // of this block
  int slices;                    // of K
  int64_t slice_units;           // of one slice of one row, padding included
  const uint32_t* panels;        // the first panel
  int64_t width;                 // output columns in these panels: 32 each, the last may have less
  const uint32_t* next_panel;    // what this thread is likely to read after them, or null
  const float* bias;             // of the first panel's columns, or null
  void* out;                     // of row 0 and the first column
  int64_t out_stride;            // elements from row to row
  bool out_is_bf16;              // else fp32
};

using MatmulKernel = void (*)(const MatmulBlock&);

void matmul_bf16_amx(const MatmulBlock& block);
void matmul_bf16_avx512_bf16(const MatmulBlock& block);
void matmul_bf16_avx512(const MatmulBlock& block);
void matmul_fp32_avx512(const MatmulBlock& block);
void matmul_bf16_avx2(const MatmulBlock& block);
void matmul_fp32_avx2(const MatmulBlock& block);
void matmul_bf16_portable(const MatmulBlock& block);
void matmul_fp32_portable(const MatmulBlock& block);

}  // namespace maniple::cpu
