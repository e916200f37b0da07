// What a library makes of codes (kernels/cuda/gemm.hpp, cuBLASLt's documentation): exact sums, rounded once.
#pragma once

#include <kernels/tensor/tensor_view.hpp>

namespace maniple::testing {

inline double code_at(ConstTensorView codes, int64_t i) {
  if (codes.dtype == DType::fp8) return static_cast<float>(codes.as<Float8>()[i]);
  return static_cast<int8_t>(codes.as<uint8_t>()[i]);
}

// x_scales [k / 128, m] and weight_scales [n / 128, k / 128, rows of a multiple of 4], or null.
inline void multiply_codes(ConstTensorView x, ConstTensorView weight, const float* x_scales,
                           const float* weight_scales, TensorView out) {
  const int64_t m = x.shape[0], n = weight.shape[0], k = x.shape[1], stride = (k + 511) / 512 * 4;
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double scale = x_scales
                                 ? static_cast<double>(x_scales[i / 128 * m + row]) *
                                       static_cast<double>(weight_scales[column / 128 * stride + i / 128])
                                 : 1;
        sum += scale * code_at(x, row * k + i) * code_at(weight, column * k + i);
      }
      if (out.dtype == DType::int32)
        out.as<int32_t>()[row * n + column] = static_cast<int32_t>(sum);
      else
        out.as<float>()[row * n + column] = static_cast<float>(sum);
    }
}

}  // namespace maniple::testing
