// What the instruction paths of the matmul share: one block of work, and the functions that do it.
//
// A packed weight is a row of panels of 32 weight rows (output columns). Its smallest piece is a unit of 32
// bits: two bf16 that follow each other in K, or one fp32. Every reduction slice of a panel is zero-padded to
// the path's K step; see Layout in matmul.cpp for the order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace maniple::cpu {

constexpr int panel_width = 32;
constexpr int max_slices = 255;

// out[rows, panels] = x[rows, columns] * panels^T. The slices of K are summed each on its own and added by a
// binary tree; then the bias.
struct MatmulBlock {
  const void* x;           // first row of the block, bf16 or fp32 as the weight
  int64_t rows;            // of x
  int64_t columns;         // K; rows of x are contiguous
  int slices;              // of K
  const uint32_t* panels;  // the first panel
  int64_t slice_units;     // of one slice of a panel: of its 32 rows, padding included
  int64_t width;           // output columns in these panels: 32 each, the last may have less
  const float* bias;       // of the first panel's columns, or null
  void* out;               // of the first row and column
  int64_t out_stride;      // elements from row to row
  bool out_is_bf16;        // else fp32
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
