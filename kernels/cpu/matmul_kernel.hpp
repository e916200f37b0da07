// The interface of the matmul's instruction paths: one block of work, and the functions that compute it.
//
// A packed weight is a row of panels of 32 weight rows (output columns). Its smallest piece is a
// unit of 32 bits: two bf16 adjacent in K, or one fp32. Every reduction slice of a panel is
// zero-padded to the path's K step; PanelLayout in path_kernels.hpp gives the order. Activations
// are packed before the product: tile after tile of RowTiles, each [slice][units / step][rows][step]
// with the same padding of a slice; some paths widen bf16 to fp32 there, so that a unit of weights meets
// two of x. A kernel reads both sides from first to last.
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
  int64_t first_tile, end_tile;      // of this block
  int slices = 0;                    // of K
  int64_t slice_units = 0;           // of one slice of one row of the weights, padding included
  const uint32_t* panels = nullptr;  // the first panel
  int64_t width = 0;                 // output columns in these panels: 32 each, the last may have less
  const float* bias = nullptr;       // of the first panel's columns, or null
  void* out = nullptr;               // of row 0 and the first column
  int64_t out_stride = 0;            // elements from row to row
  bool out_is_bf16 = false;          // else fp32
  const uint32_t* next = nullptr;    // the panel that is read after these, to prefetch
};

using MatmulKernel = void (*)(const MatmulBlock&);

enum class ScaleType : uint8_t { bf16, fp16, fp32, e8m0 };

// A block whose panels hold codes. A panel is [slice][run][words of a run][32 columns]: a word is 4 or 8 codes of a column, a run is the
// columns of a slice that share a scale, zero-padded to whole words. In a word of a weight that is widened code k is at bit
// b * (k / 2) + 16 * (k % 2), so that a shift by b * p leaves pair p in the halves of the word; where x is integers too, at bit 8 * k.
// The value of a slice is a chain over its runs: sum of products * (scale of x * scale of the column).
struct CodeBlock : MatmulBlock {
  int64_t panel_words, row_units;  // of a panel; of a row of x over all slices
  const int32_t* run_words;        // of each run of all slices, a column's
  const int32_t* slice_runs;       // [slices + 1]: where the runs of a slice begin
  const void* scales;              // [panels][runs][32] of the type
  ScaleType scale_type;
  const uint8_t* zeros;  // [panels][runs][32], or 32 for all with zero_step 0
  int64_t zero_step;     // from run to run
  const float* x_scales;
  int64_t x_scale_row, x_scale_run;  // steps from row to row of x, from run to run
  const int32_t* x_sums;             // integers: [rows][slices], the sum of the codes of x
  uint32_t* expanded;                // room for a panel of widened codes
};

using CodeKernel = void (*)(const CodeBlock&);

// Products of activations of one path and type with codes.
struct CodeKernels {
  CodeKernel int8, fp8, int4, mxfp4;
};

// Rounds rows of x, which are bf16 or fp32, to codes.
struct InputKernels {
  float (*abs_maximum)(const void* x, int64_t count);
  // Returns the sum of the codes.
  int32_t (*round_int8)(const void* x, int64_t count, float scale, int8_t* codes);
  void (*round_e4m3)(const void* x, int64_t count, float scale, void* values);  // in the type of x
};

void matmul_bf16_amx(const MatmulBlock& block);
void matmul_bf16_avx512_bf16(const MatmulBlock& block);
void matmul_bf16_avx512(const MatmulBlock& block);
void matmul_fp32_avx512(const MatmulBlock& block);
void matmul_bf16_avx2(const MatmulBlock& block);
void matmul_fp32_avx2(const MatmulBlock& block);
void matmul_bf16_portable(const MatmulBlock& block);
void matmul_fp32_portable(const MatmulBlock& block);

void matmul_integers_amx(const CodeBlock& block);
void matmul_integers_avx512_bf16(const CodeBlock& block);
void matmul_integers_avx512(const CodeBlock& block);
void matmul_integers_avx2(const CodeBlock& block);
void matmul_integers_portable(const CodeBlock& block);

CodeKernels code_kernels_bf16_amx();
CodeKernels code_kernels_bf16_avx512_bf16();
CodeKernels code_kernels_avx512();
CodeKernels code_kernels_avx2();
CodeKernels code_kernels_portable();

InputKernels input_kernels_avx512(bool bf16);
InputKernels input_kernels_avx2(bool bf16);
InputKernels input_kernels_portable(bool bf16);

}  // namespace maniple::cpu
