#include <kernels/cuda/code_trial.hpp>
#include <kernels/support/check.hpp>
#include <kernels/tensor/tensor.hpp>

#include <cmath>
#include <vector>

namespace maniple::cuda {

namespace {

// Five blocks of columns, so that rows of block scales have padding.
constexpr int64_t m = 48, n = 272, k = 640, block = 128;

int value_of(int64_t row, int64_t column, int64_t salt) {
  return static_cast<int>((row * 13 + column * (7 + row % 5) + salt) % 15) - 7;
}
float scale_of(int64_t i, int64_t j) { return std::exp2f(static_cast<float>((3 * i + j) % 5 - 2)); }

template <typename T, typename At>
Tensor made(Device& device, DType dtype, int64_t rows, int64_t columns, At at) {
  std::vector<T> values;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) values.push_back(at(row, column));
  Tensor tensor(device, dtype, {rows, columns});
  device.upload(tensor.view().data, reinterpret_cast<const std::byte*>(values.data()),
                values.size() * sizeof(T));
  return tensor;
}

}  // namespace

TrialResult try_codes(Device& device, device::Stream stream, Gemm& gemm, DType codes, bool blocks) {
  const auto code = [&](int64_t salt) {
    return [=](int64_t row, int64_t column) {
      const int value = value_of(row, column, salt);
      return codes == DType::fp8 ? Float8(static_cast<float>(value)).bits : static_cast<uint8_t>(value);
    };
  };
  const Tensor x = made<uint8_t>(device, codes, m, k, code(1)),
               weight = made<uint8_t>(device, codes, n, k, code(2)),
               x_scales = made<float>(device, DType::fp32, k / block, m, scale_of),
               weight_scales = made<float>(device, DType::fp32, (n + block - 1) / block,
                                           block_scale_columns(k), scale_of);
  const bool integers = codes == DType::uint8;
  Tensor out(device, integers ? DType::int32 : DType::fp32, {m, n});
  try {
    gemm.multiply(
        stream, x.view(), weight.view(), {}, out.view(),
        blocks ? BlockScales{x_scales.view().as<float>(), weight_scales.view().as<float>()} : BlockScales{});
  } catch (const Error&) {
    return TrialResult::refused;
  }
  std::vector<int32_t> sums(static_cast<size_t>(m * n));
  device.download(reinterpret_cast<std::byte*>(sums.data()), out.view().data, out.view().bytes());
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = 0; column < n; ++column) {
      double expected = 0, terms = 0;
      for (int64_t i = 0; i < k; ++i) {
        const float scale = blocks ? scale_of(i / block, row) * scale_of(column / block, i / block) : 1;
        const double term = scale * value_of(row, i, 1) * value_of(column, i, 2);
        expected += term;
        terms += std::abs(term);
      }
      const int32_t bits = sums[static_cast<size_t>(row * n + column)];
      const double sum = integers ? bits : static_cast<double>(std::bit_cast<float>(bits));
      // Tensor cores add e4m3 products with fewer bits than fp32 has. A scale in a wrong place is far outside of this.
      if (!(std::abs(sum - expected) <= (integers ? 0 : terms / 512))) return TrialResult::wrong;
    }
  return TrialResult::right;
}

}  // namespace maniple::cuda
