// Matrices of codes (kernels/weight.hpp) as the kernels see them, and what surrounds their products. Pointers are device memory.
//
// Products take elements of the activation type: code - zero, which is exact, where a row has one scale, so that it multiplies the fp32
// sum; else (code - zero) * scale in fp32, rounded once. Many rows multiply with the same elements as few.
#pragma once

#include <device/stream.hpp>
#include <kernels/tensor/dtype.hpp>

#include <cstdint>

namespace maniple::cuda {

struct CodeMatrix {
  const uint8_t*
      codes;  // [rows, row_bytes]; int8: code - 128, signed; of 4 bits: the lower half of a byte first
  const void* scales;    // [rows, groups]
  const uint8_t* zeros;  // the same, or null: common_zero
  int bits;              // of a code: 4 or 8
  bool floating;         // e4m3 or, of 4 bits, e2m1; else integers
  bool scaled;           // whether elements hold their scale
  DType scale_type;
  uint8_t common_zero;
  int row_bytes;  // a multiple of 16; what is behind the columns is zero
  int columns;
  int group;          // columns that share a scale
  int groups;         // of a row
  int first;          // place of column 0 in its group
  float input_scale;  // of InputRounding::fixed
};
static_assert(sizeof(CodeMatrix) == 56, "without padding, for it is compared by its bytes");

// out[i] = row first + i of the matrix, or row ids[i] - first (zeros outside of [0, rows)), as elements of dtype [count, columns].
void expand_rows(device::Stream stream, const CodeMatrix& matrix, const int32_t* ids, int64_t first, int rows,
                 DType dtype, void* out, int count);

// How inputs are rounded, as ActivationRule. Codes are numbers of the inputs' type, which holds them exactly; those of groups are
// multiplied by their scale at once, rounded again. For a library (Gemm::multiply) they are bytes, those of groups too.
enum class InputRounding : uint8_t { none, per_token, per_group, fixed };
struct RoundArguments {
  DType dtype;
  const void* x;  // [rows, columns], or those that x_rows names
  InputRounding rule;
  bool e4m3;            // else integers
  int group;            // of per_group
  bool power_scales;    // of per_group
  float input_scale;    // of fixed
  const float* maxima;  // [ranks, maxima_rows] of per_token, or null: those of x
  int ranks;
  int64_t maxima_rows;
  void* out;  // [rows, stride], zeros from columns on
  int stride;
  bool bytes;           // else numbers of dtype
  float* input_scales;  // [rows], of per_group with bytes [groups, rows]; else not of none and per_group
  int rows;
  int columns;
  int64_t first_row = 0;  // of x, of x_rows and of maxima
  // Of experts: as many rows as offsets say that there are.
  const int32_t* offsets = nullptr;  // [experts + 1]
  const int32_t* x_rows = nullptr;
  const CodeMatrix* experts = nullptr;
  int expert_count = 0;
};
void round_inputs(device::Stream stream, const RoundArguments& arguments);

// What a sum of elements becomes: with the scales that it does not hold yet and the bias.
struct FinishArguments {
  CodeMatrix codes = {};
  const float* input_scales = nullptr;  // by row, or null
  const float* bias = nullptr;          // by column, or null
};
// out[row, first_column + column] = the finished sum; sums: fp32 or int32; out: [rows, width] of out_type.
void finish_sums(device::Stream stream, const FinishArguments& arguments, const void* sums, DType sum_type,
                 int rows, int columns, DType out_type, void* out, int64_t first_column, int64_t width);

// Ops::row_abs_maxima, Ops::gather_columns.
void row_abs_maxima(device::Stream stream, DType dtype, const void* x, float* out, int rows, int columns);
void gather_columns(device::Stream stream, DType dtype, const void* x, const int32_t* order, void* out,
                    int tokens, int part, int columns);

}  // namespace maniple::cuda
