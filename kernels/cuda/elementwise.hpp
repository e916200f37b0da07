// The row-wise and elementwise kernels, for host code. Pointers are device memory, rows are contiguous, dtype
// is bf16, fp16 or fp32. Sixteen bytes move at once where widths and addresses allow it.
#pragma once

#include <device/stream.hpp>
#include <kernels/gate_activation.hpp>
#include <kernels/tensor/dtype.hpp>

#include <cstdint>

namespace maniple::cuda {

// out = rms_norm(x); with a delta (of dtype or fp32) x += delta first, rounded once.
struct NormArguments {
  DType dtype;
  void* x;
  const void* delta = nullptr;
  DType delta_type = DType::fp32;
  const float* weight;
  float epsilon;
  void* out;
  int rows;
  int width;
};
void norm_rows(device::Stream stream, const NormArguments& arguments);

// gate_up: [rows, 2 * width]
void gate_mul(device::Stream stream, GateActivation activation, DType dtype, const void* gate_up, void* out,
              int64_t rows, int width);
// out = a + b, rounded once. Rows of b are multiplied by sigmoid(gate[row]) where there is a gate; a bias is one row for all.
struct SumArguments {
  DType dtype;  // of a and out
  const void* a;
  const void* b;
  DType b_type;  // dtype or fp32
  void* out;
  int64_t rows;
  int64_t width;
  bool is_bias = false;
  const float* gate = nullptr;
};
void add(device::Stream stream, const SumArguments& arguments);
// out = x, rounded or widened: one of both is fp32.
void convert(device::Stream stream, DType from, const void* x, DType to, void* out, int64_t count);
// out[i] = table[ids[i] - first], zeros for rows outside of [0, table_rows). row_bytes is even.
void gather_rows(device::Stream stream, const int32_t* ids, int64_t first, int64_t table_rows,
                 const void* table, void* out, int count, int64_t row_bytes);

}  // namespace maniple::cuda
