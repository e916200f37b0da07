// Dense products by a library.
#pragma once

#include <device/stream.hpp>
#include <kernels/tensor/tensor_view.hpp>

namespace maniple::cuda {

class Gemm {
 public:
  virtual ~Gemm() = default;

  // out[m, n] = x[m, k] * weight[n, k]^T + bias[n], on the stream. x and weight have one type; out has it or
  // is fp32; bias is of out's type or empty.
  virtual void multiply(device::Stream stream, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView bias, TensorView out) = 0;
  // Chooses the algorithms for this product and for those with fewer rows of x. Touches no memory.
  virtual void prepare(ConstTensorView /*x*/, ConstTensorView /*weight*/, ConstTensorView /*bias*/,
                       TensorView /*out*/) {}
};

}  // namespace maniple::cuda
