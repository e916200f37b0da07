#include <emulation/made_codes.hpp>
#include <kernels/cuda/skinny_gemm.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace maniple {
namespace {

using testing::data;
using testing::downloaded;
using testing::hashed;
using testing::uniform;
using testing::uploaded;

struct Case {
  int m, n, k;
  int bits;
  bool floating = false;
  bool zeros = false;
  int group = 0;  // 0: a row has one scale
  int first = 0;  // place of column 0 in its group
  bool gated = false;
};

// A matrix of codes with one scale type, inputs, and what both products make of them.
class CodeProduct {
 public:
  CodeProduct(device::DeviceUnderTest& device, const Case& c, DType dtype)
      : device_(device),
        case_(c),
        dtype_(dtype),
        stride_((c.k + 7) / 8 * 8),
        codes_(device.memory(), {c.n, c.k, c.bits, c.floating, c.zeros, c.group, c.first},
               [&](int row, int column) {
                 const auto code = static_cast<uint8_t>(hashed(static_cast<uint64_t>(row * c.k + column)));
                 return c.floating && (code & 0x7f) == 0x7f ? uint8_t{0} : code;  // without NaN
               }) {
    std::vector<uint16_t> x(static_cast<size_t>(c.m * stride_) + 8, 0x7fff);
    for (int row = 0; row < c.m; ++row)
      for (int i = 0; i < stride_; ++i)
        x[static_cast<size_t>(row * stride_ + i)] =
            rounded(i < c.k ? uniform(3, static_cast<uint64_t>(row * c.k + i)) : 0);
    x_ = upload(x);
    for (int i = 0; i < c.n; ++i) bias_.push_back(uniform(4, static_cast<uint64_t>(i)));
  }

  std::vector<float> by_codes(int rows) {
    Tensor bias = upload(bias_);
    return product(
        [&](const cuda::SkinnyGemmArguments& a, const cuda::SkinnyGemmWorkspace& workspace) {
          return cuda::skinny_gemm(device_.stream(), a, workspace);
        },
        rows, nullptr, {codes_.matrix(), nullptr, data<float>(bias)});
  }
  // The matrix is expanded before, and rows are multiplied by eights; for several scales of a row.
  std::vector<float> by_elements(int rows) {
    Tensor bias = upload(bias_),
           expanded = upload(std::vector<uint16_t>(static_cast<size_t>(case_.n * case_.k)));
    cuda::expand_rows(device_.stream(), codes_.matrix(), nullptr, 0, case_.n, dtype_, expanded.view().data,
                      case_.n);
    std::vector<uint16_t> wide(static_cast<size_t>(case_.n * stride_));
    const auto narrow = downloaded<uint16_t>(device_.memory(), expanded);
    for (int row = 0; row < case_.n; ++row)
      std::copy_n(narrow.begin() + row * case_.k, case_.k, wide.begin() + row * stride_);
    Tensor weight = upload(wide);
    return product(
        [&](const cuda::SkinnyGemmArguments& a, const cuda::SkinnyGemmWorkspace& workspace) {
          return multiply_by_eights(a, workspace);
        },
        rows, weight.view().data, {.bias = data<float>(bias)});
  }

 private:
  template <typename T>
  Tensor upload(const std::vector<T>& values) {
    return uploaded(device_.memory(), values);
  }
  uint16_t rounded(float value) const {
    return dtype_ == DType::bf16 ? BFloat16(value).bits : Float16(value).bits;
  }

  bool multiply_by_eights(const cuda::SkinnyGemmArguments& all, const cuda::SkinnyGemmWorkspace& workspace) {
    for (int row = 0; row < all.m; row += cuda::max_skinny_rows) {
      cuda::SkinnyGemmArguments a = all;
      a.x = static_cast<const uint16_t*>(all.x) + row * all.k;
      a.out = static_cast<float*>(all.out) + row * all.n / (all.gated ? 2 : 1);
      a.m = std::min(all.m - row, cuda::max_skinny_rows);
      if (!cuda::skinny_gemm(device_.stream(), a, workspace)) return false;
    }
    return true;
  }

  template <typename Multiply>
  std::vector<float> product(Multiply multiply, int rows, const void* weight,
                             const cuda::FinishArguments& finish) {
    const auto count = static_cast<size_t>(rows * case_.n / (case_.gated ? 2 : 1));
    Tensor out = upload(std::vector<float>(count)),
           partials = upload(
               std::vector<float>(cuda::skinny_partial_floats, std::numeric_limits<float>::quiet_NaN())),
           arrivals = upload(std::vector<int32_t>(cuda::skinny_arrivals));
    EXPECT_TRUE(multiply(cuda::SkinnyGemmArguments{dtype_, DType::fp32, data<uint16_t>(x_), weight, finish,
                                                   out.view().data, rows, case_.n, stride_, case_.gated},
                         cuda::SkinnyGemmWorkspace{data<float>(partials), data<int32_t>(arrivals)}));
    EXPECT_EQ(downloaded<int32_t>(device_.memory(), arrivals), std::vector<int32_t>(cuda::skinny_arrivals))
        << "arrivals are counted back to zero";
    return downloaded<float>(device_.memory(), out);
  }

  device::DeviceUnderTest& device_;
  Case case_;
  DType dtype_;
  int stride_;
  testing::MadeCodes codes_;
  std::vector<float> bias_;
  Tensor x_;
};

using DequantGemm = testing::DeviceTest;
INSTANTIATE_TEST_SUITE_P(Orders, DequantGemm, ::testing::Range(uint64_t{0}, uint64_t{4}));

// Groups end anywhere, k is cut into slices, the last columns are few.
const std::vector<Case> cases{
    {1, 64, 512, 4, false, true, 128},    {3, 33, 72, 8, false, false, 16, 8},
    {8, 96, 1000, 8, true, false, 128},   {9, 31, 256, 4, false, false, 32, 0},
    {16, 70, 136, 8, false, true, 24, 5}, {17, 100, 77, 4, false, true, 10, 3},
    {32, 32, 1032, 8, true, false, 64},   {33, 66, 320, 4, false, true, 64, 40, true},
    {64, 130, 264, 8, false, true, 128},  {5, 48, 352, 4, true, false, 32, 8}};

TEST_P(DequantGemm, HasTheBitsOfAProductWithTheExpandedMatrix) {
  for (const Case& c : cases)
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      CodeProduct product(device(), c, dtype);
      EXPECT_EQ(product.by_codes(c.m), product.by_elements(c.m)) << c.m << " x " << c.n << " x " << c.k;
    }
}

TEST_P(DequantGemm, ARowHasTheSameBitsInAnyCompanyAndOrder) {
  for (const Case& c : {Case{64, 70, 1100, 4, false, true, 128}, {64, 40, 90, 8, true}}) {
    CodeProduct product(device(), c, DType::bf16);
    const std::vector<float> expected = product.by_codes(64);
    for (const int m : {1, 5, 13, 32, 50}) {
      const std::vector<float> fewer = product.by_codes(m);
      EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), expected.begin())) << m;
    }
  }
}

TEST_P(DequantGemm, LeavesOtherTypesAndMoreRowsToOthers) {
  const auto refused = [&](DType dtype, int m) {
    return !cuda::skinny_gemm(device().stream(), {dtype, dtype, nullptr, nullptr, {}, nullptr, m, 1, 8}, {});
  };
  EXPECT_TRUE(refused(DType::fp32, 1));
  EXPECT_TRUE(refused(DType::bf16, cuda::max_code_rows + 1));
}

}  // namespace
}  // namespace maniple
