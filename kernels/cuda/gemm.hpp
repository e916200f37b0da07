// Products by a library.
#pragma once

#include <device/stream.hpp>
#include <kernels/tensor/tensor_view.hpp>

namespace maniple::cuda {

// Scales of e4m3 codes that act inside a product: x's of 128 columns, weight's of 128 x 128. Device memory; null: none.
struct BlockScales {
  const float* x = nullptr;       // [k / 128, m]
  const float* weight = nullptr;  // [n / 128, k / 128], both rounded up, rows of a multiple of 4
};
constexpr int64_t block_scale_columns(int64_t k) { return (k + 511) / 512 * 4; }

class Gemm {
 public:
  virtual ~Gemm() = default;

  // out[m, n] = x[m, k] * weight[n, k]^T + bias[n], on the stream. x and weight have one type; out has it or
  // is fp32; bias is of out's type or empty.
  // Codes: fp8, out is fp32; or uint8, which are integers in two's complement here, out is int32. No bias; n and k are multiples of 16.
  // Throws Error (fault) where the library does not compute this.
  virtual void multiply(device::Stream stream, ConstTensorView x, ConstTensorView weight,
                        ConstTensorView bias, TensorView out, BlockScales scales = {}) = 0;
  // Chooses the algorithms for this product and for those with fewer rows of x. Touches no memory.
  virtual void prepare(ConstTensorView /*x*/, ConstTensorView /*weight*/, ConstTensorView /*bias*/,
                       TensorView /*out*/, bool /*blocks*/ = false) {}
};

}  // namespace maniple::cuda
