// Weights in packed layouts and the products with them, for every instruction path of the CPU backend.
// Contracts as in kernels/ops.hpp.
#pragma once

#include <kernels/cpu/path_kernels.hpp>
#include <kernels/cpu/thread_pool.hpp>
#include <kernels/ops.hpp>

namespace maniple::cpu {

Weight make_weight(Device& device, const PathKernels& path, DType dtype, int64_t rows, int64_t columns,
                   int slices);
void pack(const PathKernels& path, Weight& weight, int64_t first_row, ConstTensorView raw);

// Memory for the activations of one product at a time, which are packed before they are multiplied. Grows to
// the largest product.
class MatmulScratch {
 public:
  explicit MatmulScratch(Device& device) : device_(device) {}
  uint32_t* units(int64_t count);

 private:
  Device& device_;
  Tensor memory_;
};

void matmul(ThreadPool& pool, const PathKernels& path, ConstTensorView x, const Weight& weight,
            ConstTensorView bias, TensorView out, MatmulScratch& scratch);
void embed(ThreadPool& pool, const PathKernels& path, ConstTensorView ids, const Weight& table,
           IndexRange vocabulary, TensorView out);

}  // namespace maniple::cpu
