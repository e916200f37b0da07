// A library whose products of codes are those of cuBLASLt's documentation, one with others, and one that has none.
#include <emulation/emulated_backend.hpp>
#include <kernels/code_products.hpp>
#include <kernels/cuda/codes.hpp>
#include <support/mirrored_backend.hpp>

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace maniple
