// Kernels that show what each primitive does, launched on device memory.
#pragma once

#include <device/stream.hpp>
#include <kernels/tensor/dtype.hpp>

namespace maniple::cuda {

// out[i] = in[127 - i], through shared memory.
void reversed_through_shared(device::Stream stream, const float* in, float* out);
// Rows of 32: row i < 4 is in turned left by i lanes, row 4 is in[lane ^ 5], row 5 is 1 where in > 0.
void exchanged_in_warp(device::Stream stream, const float* in, float* out);
// out[i] = in[i] for i < valid_count, 0 for the others up to count, through three stages of asynchronous
// copies. Both counts are multiples of 4.
void copied_in_stages(device::Stream stream, const float* in, float* out, int count, int valid_count);
// out[16, 8] += a[16, 16] * b[16, 8], row major, bf16 or fp16; transposed: b is given as [8, 16].
void multiplied(device::Stream stream, DType dtype, const void* a, const void* b, bool transposed,
                float* out);
// Each of 64 threads of each block adds 1 to total;
// out[block] = the former value that thread 0 of the block got.
void counted(device::Stream stream, int blocks, int* total, int* out);

}  // namespace maniple::cuda
