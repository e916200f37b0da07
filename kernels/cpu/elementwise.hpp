// Operations on rows, for every instruction path of the CPU backend. Contracts as in kernels/ops.hpp.
#pragma once

#include <kernels/cpu/path_kernels.hpp>
#include <kernels/cpu/thread_pool.hpp>

namespace maniple::cpu {

void rms_norm(ThreadPool& pool, const PathKernels& path, ConstTensorView x, ConstTensorView weight,
              float epsilon, TensorView out);
void add_rms_norm(ThreadPool& pool, const PathKernels& path, ConstTensorView delta, TensorView residual,
                  ConstTensorView weight, float epsilon, TensorView out);
void silu_mul(ThreadPool& pool, const PathKernels& path, ConstTensorView gate_up, TensorView out);
void add(ThreadPool& pool, const PathKernels& path, ConstTensorView a, ConstTensorView b, TensorView out);
void add_bias(ThreadPool& pool, const PathKernels& path, TensorView x, ConstTensorView bias);
void gather_rows(ThreadPool& pool, ConstTensorView x, ConstTensorView rows, TensorView out);

}  // namespace maniple::cpu
