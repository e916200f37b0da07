// A library whose products of codes are those of cuBLASLt's documentation, one with others, and one that has none.
#include <emulation/emulated_backend.hpp>
#include <kernels/code_products.hpp>
#include <kernels/cuda/codes.hpp>
#include <kernels/cuda/cuda_ops.hpp>
#include <support/mirrored_backend.hpp>

#include <gmock/gmock.h>

#include <numeric>

namespace maniple {
namespace {

using namespace testing;
using emulation::LibraryCodes;
using ::testing::HasSubstr;

TEST(LibraryCodes, AreTriedOnceAndUsedWhereTheyAreRight) {
  constexpr int64_t rows = 70, n = 272, k = 256;
  for (const CodeCase& c : code_cases())
    for (const LibraryCodes codes :
         {LibraryCodes::right, LibraryCodes::wrong, LibraryCodes::refused, LibraryCodes::refused_later}) {
      if (c.rule == ActivationRule::none) continue;
      const bool by_group = c.rule == ActivationRule::per_group;
      SCOPED_TRACE(fmt::format("{}, {}", to_string(c), static_cast<int>(codes)));
      const Backend backend = mirrored(emulation::emulated_cuda_backend(1, codes));
      CodeMatrix matrix(c.format, n, k, by_group ? 128 : -1, false, DType::bf16, 7);
      for (int64_t i = 0; by_group && i < n * 2; ++i)
        matrix.scales[static_cast<size_t>(i)] = i / 256 % 2 == 0 ? 0.3125f : 0.75f;
      const Weight weight = packed_columns(*backend.ops, matrix, DType::bf16, {0, k}, 1, c.rule, 0.02f);
      const Tensor x = random_tensor(*backend.device, DType::bf16, {rows, k}, 1);
      Tensor out(*backend.device, DType::fp32, {rows, n});
      backend.ops->prepare_matmul(x, weight, {}, out);
      const std::string warning = backend.ops->warning();
      if (codes == LibraryCodes::wrong)
        EXPECT_THAT(warning, HasSubstr(fmt::format("multiplies {} codes", name_of(c.format))));
      else
        EXPECT_EQ(warning, "");
      backend.ops->matmul(x, weight, {}, out);
      ASSERT_NO_FATAL_FAILURE(
          expect_product(x, matrix, c.rule, 0.02f, {}, out, 0x1p-24,
                         by_group && codes != LibraryCodes::right ? DType::bf16 : DType::fp32));
    }
}

// Writes down how many columns of out each product has, and computes nothing.
struct ColumnsOfProducts : cuda::Gemm {
  explicit ColumnsOfProducts(std::vector<int64_t>& columns) : columns_(columns) {}
  void multiply(device::Stream, ConstTensorView, ConstTensorView weight, ConstTensorView, TensorView,
                cuda::BlockScales) override {
    columns_.push_back(weight.shape[0]);
  }
  std::vector<int64_t>& columns_;
};

TEST(LibraryCodes, ThatAreWidenedFirstComeInEqualPanelsOfWholeTilesOfTheLibrary) {
  constexpr int64_t tile = 128, most = 2048, k = 64, rows = 70;
  emulation::EmulatedDevice device;
  std::vector<int64_t> columns;
  cuda::CudaOps ops(device, &device.stream(), std::make_unique<ColumnsOfProducts>(columns));
  for (const int64_t n : {1, 272, 2048, 2049, 2900, 4100, 10240}) {
    SCOPED_TRACE(n);
    const Weight weight = ops.make_weight(
        {.dtype = DType::bf16, .rows = n, .columns = k, .format = WeightFormat::int4, .group = 32});
    const Tensor x(device, DType::bf16, {rows, k});
    Tensor out(device, DType::fp32, {rows, n});
    columns.clear();
    ops.matmul(x, weight, {}, out);
    ASSERT_EQ(std::ssize(columns), (n + most - 1) / most);
    EXPECT_EQ(std::reduce(columns.begin(), columns.end()), n);
    for (size_t panel = 0; panel + 1 < columns.size(); ++panel) {
      EXPECT_EQ(columns[panel], columns[0]);
      EXPECT_EQ(columns[panel] % tile, 0);
    }
    EXPECT_LE(columns.back(), columns[0]);
    EXPECT_GT(columns.back(), columns[0] - tile * std::ssize(columns));
  }
}

}  // namespace
}  // namespace maniple
