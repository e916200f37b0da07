#include <emulation/device_test.hpp>
#include <kernels/cuda/skinny_gemm.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace maniple {
namespace {

using testing::data;
using testing::downloaded;
using testing::uniform;
using testing::uploaded;

struct Shape3 {
  int m, n, k;
};

// Operands with NaN after them, and `offset` elements of NaN before them, which also break the alignment.
class Product {
 public:
  Product(device::DeviceUnderTest& device, Shape3 shape, DType dtype, int offset = 0)
      : device_(device), shape_(shape), dtype_(dtype), offset_(static_cast<size_t>(offset)) {
    x_ = operand(1, shape.m * shape.k);
    weight_ = operand(2, shape.n * shape.k);
    for (int i = 0; i < shape.n; ++i) bias_.push_back(uniform(3, static_cast<uint64_t>(i)));
  }

  // As floats, whatever the type.
  std::vector<float> multiply(bool biased, DType out_type, bool gated = false) {
    Device& memory = device_.memory();
    const size_t count = static_cast<size_t>(shape_.m * shape_.n / (gated ? 2 : 1));
    Tensor x = uploaded(memory, x_), weight = uploaded(memory, weight_), bias = uploaded(memory, bias_),
           out = uploaded(memory, std::vector<std::byte>(count * size_of(out_type))),
           partials = uploaded(memory, std::vector<float>(cuda::skinny_partial_floats,
                                                          std::numeric_limits<float>::quiet_NaN())),
           arrivals = uploaded(memory, std::vector<int32_t>(cuda::skinny_arrivals));
    EXPECT_TRUE(cuda::skinny_gemm(device_.stream(),
                                  {dtype_,
                                   out_type,
                                   data<uint16_t>(x) + offset_,
                                   data<uint16_t>(weight) + offset_,
                                   {.bias = biased ? data<float>(bias) : nullptr},
                                   out.view().data,
                                   shape_.m,
                                   shape_.n,
                                   shape_.k,
                                   gated},
                                  {data<float>(partials), data<int32_t>(arrivals)}));
    EXPECT_EQ(downloaded<int32_t>(memory, arrivals), std::vector<int32_t>(cuda::skinny_arrivals))
        << "arrivals are counted back to zero";
    if (out_type == DType::fp32) return downloaded<float>(memory, out);
    std::vector<float> wide;
    for (const uint16_t bits : downloaded<uint16_t>(memory, out)) wide.push_back(widened(bits));
    return wide;
  }

  // The bound: a sum of fp32 roundings that mostly cancel, then one rounding of the result.
  void expect_exact(const std::vector<float>& out, bool biased, DType out_type) const {
    for (int row = 0; row < shape_.m; ++row)
      for (int column = 0; column < shape_.n; ++column) {
        const Sum sum = sum_of(row, column, biased);
        ASSERT_NEAR(out[static_cast<size_t>(row * shape_.n + column)], sum.exact,
                    sum.error + rounding(out_type) * std::abs(sum.exact))
            << shape_.m << " x " << shape_.n << " x " << shape_.k << " at " << row << ", " << column;
      }
  }
  // silu is nowhere steeper than 1.1.
  void expect_exact_gated(const std::vector<float>& out, bool biased, DType out_type) const {
    const int width = shape_.n / 2;
    for (int row = 0; row < shape_.m; ++row)
      for (int column = 0; column < width; ++column) {
        const Sum gate = sum_of(row, column, biased), up = sum_of(row, width + column, biased);
        const double silu = gate.exact / (1 + std::exp(-gate.exact)), product = silu * up.exact;
        ASSERT_NEAR(out[static_cast<size_t>(row * width + column)], product,
                    1.1 * gate.error * std::abs(up.exact) + std::abs(silu) * up.error +
                        (0x1p-21 + rounding(out_type)) * std::abs(product) + 0x1p-25)
            << shape_.m << " x " << shape_.n << " x " << shape_.k << " at " << row << ", " << column;
      }
  }

 private:
  struct Sum {
    double exact, error;
  };
  Sum sum_of(int row, int column, bool biased) const {
    double sum = biased ? bias_[static_cast<size_t>(column)] : 0.0, magnitude = std::abs(sum);
    for (int i = 0; i < shape_.k; ++i) {
      const double term =
          static_cast<double>(widened(x_[offset_ + static_cast<size_t>(row * shape_.k + i)])) *
          static_cast<double>(widened(weight_[offset_ + static_cast<size_t>(column * shape_.k + i)]));
      sum += term;
      magnitude += std::abs(term);
    }
    return {sum, 0x1p-20 * magnitude};
  }
  double rounding(DType out_type) const {
    return out_type == DType::fp32 ? 0 : dtype_ == DType::bf16 ? 0x1p-8 : 0x1p-11;
  }
  std::vector<uint16_t> operand(uint64_t seed, int count) const {
    std::vector<uint16_t> values(offset_ + static_cast<size_t>(count) + 8, 0x7fff);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      values[offset_ + i] =
          dtype_ == DType::bf16 ? BFloat16(uniform(seed, i)).bits : Float16(uniform(seed, i)).bits;
    return values;
  }
  float widened(uint16_t bits) const {
    return dtype_ == DType::bf16 ? static_cast<float>(std::bit_cast<BFloat16>(bits))
                                 : static_cast<float>(std::bit_cast<Float16>(bits));
  }

  device::DeviceUnderTest& device_;
  Shape3 shape_;
  DType dtype_;
  size_t offset_;
  std::vector<uint16_t> x_, weight_;
  std::vector<float> bias_;
};

using SkinnyGemm = testing::DeviceTest;
INSTANTIATE_TEST_SUITE_P(Orders, SkinnyGemm, ::testing::Range(uint64_t{0}, uint64_t{4}));

TEST_P(SkinnyGemm, AgreesWithDoublePrecisionOnAnyShapeAndAlignment) {
  const std::vector<Shape3> shapes{{1, 64, 512}, {1, 1, 1},    {3, 33, 72},   {8, 96, 1000}, {5, 31, 256},
                                   {6, 70, 136}, {7, 100, 77}, {8, 32, 1032}, {2, 65, 320},  {8, 130, 264}};
  for (const Shape3 shape : shapes)
    for (const DType dtype : {DType::bf16, DType::fp16})
      for (const DType out_type : {dtype, DType::fp32}) {
        const bool biased = (shape.n + shape.k + static_cast<int>(GetParam())) % 2 == 0;
        Product product(device(), shape, dtype, shape.m % 3 == 0 ? 1 : 0);
        product.expect_exact(product.multiply(biased, out_type), biased, out_type);
      }
}

TEST_P(SkinnyGemm, TheFirstHalfGatesTheSecond) {
  const std::vector<Shape3> shapes{{1, 64, 512}, {1, 2, 1},    {3, 34, 72},  {8, 96, 1000}, {5, 30, 256},
                                   {6, 70, 136}, {7, 100, 77}, {8, 32, 520}, {2, 66, 320},  {8, 130, 264}};
  for (const Shape3 shape : shapes)
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      const bool biased = (shape.n + shape.k + static_cast<int>(GetParam())) % 4 < 2;
      Product product(device(), shape, dtype, shape.m % 3 == 0 ? 1 : 0);
      product.expect_exact_gated(product.multiply(biased, dtype, true), biased, dtype);
    }
}

TEST_P(SkinnyGemm, ARowHasTheSameBitsInAnyCompanyAndOrder) {
  for (const Shape3 shape : {Shape3{8, 70, 1100}, {8, 40, 90}, {8, 33, 2100}}) {
    const std::vector<float> expected = Product(device(), shape, DType::bf16).multiply(true, DType::fp32);
    for (const int m : {1, 3, 5, 7}) {
      const std::vector<float> fewer =
          Product(device(), {m, shape.n, shape.k}, DType::bf16).multiply(true, DType::fp32);
      EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), expected.begin())) << m;
    }
  }
}

TEST_P(SkinnyGemm, LeavesOtherTypesAndMoreRowsToOthers) {
  const auto refused = [&](DType dtype, int m) {
    return !cuda::skinny_gemm(device().stream(), {dtype, dtype, nullptr, &dtype, {}, nullptr, m, 1, 1}, {});
  };
  EXPECT_TRUE(refused(DType::fp32, 1));
  EXPECT_TRUE(refused(DType::bf16, cuda::max_skinny_rows + 1));
}

}  // namespace
}  // namespace maniple
