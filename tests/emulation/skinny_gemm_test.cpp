#include <kernels/cuda/skinny_gemm.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace maniple {
namespace {

using testing::uniform;

struct Shape3 {
  int m, n, k;
};

// Operands with NaN behind them; `offset` elements of NaN before them spoil the alignment too.
class Product {
 public:
  Product(Shape3 shape, DType dtype, int offset = 0)
      : shape_(shape), dtype_(dtype), offset_(static_cast<size_t>(offset)) {
    x_ = operand(1, shape.m * shape.k);
    weight_ = operand(2, shape.n * shape.k);
    for (int i = 0; i < shape.n; ++i) bias_.push_back(uniform(3, static_cast<uint64_t>(i)));
    partials_.assign(cuda::skinny_partial_floats, std::numeric_limits<float>::quiet_NaN());
  }

  // As floats, whatever the type.
  std::vector<float> multiply(emulation::Order& order, bool biased, DType out_type) {
    const size_t count = static_cast<size_t>(shape_.m) * static_cast<size_t>(shape_.n);
    std::vector<float> wide(count + 1, guard);
    std::vector<uint16_t> rounded(count + 1, 0x1234);
    EXPECT_TRUE(cuda::skinny_gemm(
        &order,
        {dtype_, out_type, x_.data() + offset_, weight_.data() + offset_, biased ? bias_.data() : nullptr,
         out_type == DType::fp32 ? static_cast<void*>(wide.data()) : rounded.data(), shape_.m, shape_.n,
         shape_.k},
        {partials_.data(), arrivals_.data()}));
    EXPECT_EQ(arrivals_, std::vector<int32_t>(arrivals_.size())) << "arrivals are counted back to zero";
    EXPECT_EQ(wide.back(), guard);
    EXPECT_EQ(rounded.back(), 0x1234);
    if (out_type != DType::fp32)
      for (size_t i = 0; i < count; ++i) wide[i] = widened(rounded[i]);
    wide.pop_back();
    return wide;
  }

  void expect_exact(const std::vector<float>& out, bool biased, DType out_type) const {
    const double rounding = out_type == DType::fp32 ? 0 : dtype_ == DType::bf16 ? 0x1p-8 : 0x1p-11;
    for (int row = 0; row < shape_.m; ++row)
      for (int column = 0; column < shape_.n; ++column) {
        double sum = biased ? bias_[static_cast<size_t>(column)] : 0.0, magnitude = std::abs(sum);
        for (int i = 0; i < shape_.k; ++i) {
          const double term =
              static_cast<double>(widened(x_[offset_ + static_cast<size_t>(row * shape_.k + i)])) *
              static_cast<double>(widened(weight_[offset_ + static_cast<size_t>(column * shape_.k + i)]));
          sum += term;
          magnitude += std::abs(term);
        }
        // A sum of fp32 roundings that mostly cancel, then one rounding of the result.
        ASSERT_NEAR(out[static_cast<size_t>(row * shape_.n + column)], sum,
                    0x1p-20 * magnitude + rounding * std::abs(sum))
            << shape_.m << " x " << shape_.n << " x " << shape_.k << " at " << row << ", " << column;
      }
  }

 private:
  static constexpr float guard = 1234.5f;

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

  Shape3 shape_;
  DType dtype_;
  size_t offset_;
  std::vector<uint16_t> x_, weight_;
  std::vector<float> bias_, partials_;
  std::vector<int32_t> arrivals_ = std::vector<int32_t>(cuda::skinny_arrivals);
};

class SkinnyGemm : public ::testing::TestWithParam<uint64_t> {
 protected:
  emulation::Order order_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, SkinnyGemm, ::testing::Range(uint64_t{0}, uint64_t{4}));

TEST_P(SkinnyGemm, AgreesWithDoublePrecisionOnAnyShapeAndAlignment) {
  const std::vector<Shape3> shapes{{1, 64, 512},  {1, 1, 1},     {3, 33, 72},   {8, 96, 1000},
                                   {9, 31, 256},  {16, 70, 136}, {17, 100, 77}, {32, 32, 1032},
                                   {33, 65, 320}, {64, 130, 264}};
  for (const Shape3 shape : shapes)
    for (const DType dtype : {DType::bf16, DType::fp16})
      for (const DType out_type : {dtype, DType::fp32}) {
        const bool biased = (shape.n + shape.k + static_cast<int>(GetParam())) % 2 == 0;
        Product product(shape, dtype, shape.m % 3 == 0 ? 1 : 0);
        product.expect_exact(product.multiply(order_, biased, out_type), biased, out_type);
      }
}

TEST_P(SkinnyGemm, ARowHasTheSameBitsInAnyCompanyAndOrder) {
  for (const Shape3 shape : {Shape3{64, 70, 1100}, {64, 40, 90}}) {
    const std::vector<float> expected = Product(shape, DType::bf16).multiply(order_, true, DType::fp32);
    for (const int m : {1, 5, 13, 32, 50}) {
      const std::vector<float> fewer =
          Product({m, shape.n, shape.k}, DType::bf16).multiply(order_, true, DType::fp32);
      EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), expected.begin())) << m;
    }
    emulation::Order other{GetParam() + 1};
    EXPECT_EQ(Product(shape, DType::bf16).multiply(other, true, DType::fp32), expected);
  }
}

TEST(SkinnyGemmTypes, LeavesOtherTypesAndMoreRowsToOthers) {
  emulation::Order order;
  EXPECT_FALSE(
      cuda::skinny_gemm(&order, {DType::fp32, DType::fp32, nullptr, nullptr, nullptr, nullptr, 1, 1, 1}, {}));
  EXPECT_FALSE(cuda::skinny_gemm(
      &order, {DType::bf16, DType::bf16, nullptr, nullptr, nullptr, nullptr, 65, 1, 1}, {}));
}

}  // namespace
}  // namespace maniple
