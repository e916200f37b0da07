// The AMX path over emulated tiles: every machine runs the source that AMX machines run, the tests of attention included. This
// binary defines what the library's *_amx.cpp do, and the kernels of rows that tiles stand beside, so the linker does not take those.

#include <kernels/code_products.hpp>
#include <kernels/subjects.hpp>
#include <support/amx_emulation.hpp>

#include <kernels/cpu/attention_amx.inl>
#include <kernels/cpu/matmul_amx.inl>
#include <kernels/reference/reference_ops.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace maniple {

void cpu::matmul_bf16_amx(const MatmulBlock& block) { multiply_block<AmxKernel<EmulatedTiles>>(block); }
void cpu::matmul_integers_amx(const CodeBlock& block) {
  multiply_codes<IntegerProducts<AmxKernel<EmulatedTiles, true>>>(block);
}
cpu::InputKernels cpu::input_kernels_avx512(bool bf16) { return input_kernels_portable(bf16); }
cpu::RowKernels cpu::row_kernels_avx512(bool bf16) { return row_kernels_portable(bf16); }
cpu::RotaryKernel cpu::rotary_kernel_avx512(bool bf16) { return rotary_kernel_portable(bf16); }
cpu::SamplingKernels cpu::sampling_kernels_avx512() { return sampling_kernels_portable(); }
cpu::CodeKernels cpu::code_kernels_bf16_amx() { return amx_code_kernels<EmulatedTiles>(); }
cpu::AttentionKernel cpu::attention_kernel_amx(bool bf16) {
  return bf16 ? attention_kernel_of_tiles<EmulatedTiles>() : attention_kernel(false);
}

const std::vector<testing::Subject>& testing::all_subjects() {
  static const std::vector<Subject> subjects{{BackendKind::cpu, CpuPath::amx, true}};
  return subjects;
}

namespace {

struct Problem {
  int64_t m, n, k;
  int slices;
};

std::vector<BFloat16> random_values(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<BFloat16> values(static_cast<size_t>(count));
  for (BFloat16& value : values) value = BFloat16(normal(generator));
  return values;
}

class EmulatedAmx {
 public:
  EmulatedAmx(const std::vector<BFloat16>& rows, int64_t n, int64_t k, int slices)
      : weight_(ops_.make_weight({DType::bf16, n, k, slices})) {
    ops_.pack(weight_, 0, {view_of(rows.data(), DType::bf16, {n, k})});
  }

  // x[first_row, first_row + m) times the weight. The data around the rows,
  // and the scratch that the previous product left in the backend, are NaN.
  std::vector<float> multiply(const std::vector<BFloat16>& x, int64_t first_row, int64_t m,
                              const std::vector<float>& bias) {
    const int64_t k = weight_.columns, n = weight_.rows;
    const BFloat16 nan{std::nanf("")};
    std::vector<BFloat16> poisoned(static_cast<size_t>((m + 2) * k), nan);
    std::copy_n(x.begin() + first_row * k, m * k, poisoned.begin() + k);
    std::vector<float> out(static_cast<size_t>(m * n));
    const int64_t many = 2 * m + 64;
    const std::vector<BFloat16> nans(static_cast<size_t>(many * k), nan);
    std::vector<float> unused(static_cast<size_t>(many * n));
    ops_.matmul(view_of(nans.data(), DType::bf16, {many, k}), weight_, {},
                view_of(unused.data(), DType::fp32, {many, n}));
    ops_.matmul(view_of(poisoned.data() + k, DType::bf16, {m, k}), weight_,
                view_of(bias.data(), DType::fp32, {n}), view_of(out.data(), DType::fp32, {m, n}));
    return out;
  }

 private:
  CpuDevice device_{"test"};
  cpu::CpuOps ops_{device_, std::make_unique<ThreadPool>(2), CpuPath::amx};
  Weight weight_;
};

class AmxKernelTest : public ::testing::TestWithParam<Problem> {
 protected:
  const Problem p_ = GetParam();
  const std::vector<BFloat16> x_ = random_values(p_.m * p_.k, 1), weight_ = random_values(p_.n * p_.k, 2);
  const std::vector<float> bias_ = std::vector<float>(static_cast<size_t>(p_.n), 0.375f);
  EmulatedAmx amx_{weight_, p_.n, p_.k, p_.slices};
};

TEST_P(AmxKernelTest, MultipliesAsDoublePrecisionDoes) {
  const std::vector<float> out = amx_.multiply(x_, 0, p_.m, bias_);
  for (int64_t i = 0; i < p_.m; ++i) {
    for (int64_t j = 0; j < p_.n; ++j) {
      double sum = 0.375, magnitude = 0.375;
      for (int64_t k = 0; k < p_.k; ++k) {
        const double product = double(float(x_[static_cast<size_t>(i * p_.k + k)])) *
                               float(weight_[static_cast<size_t>(j * p_.k + k)]);
        sum += product, magnitude += std::abs(product);
      }
      ASSERT_NEAR(out[static_cast<size_t>(i * p_.n + j)], sum, 1e-6 * magnitude)
          << "row " << i << ", column " << j;
    }
  }
}

TEST_P(AmxKernelTest, GivesARowTheSameBitsInAnyBatch) {
  const std::vector<float> all = amx_.multiply(x_, 0, p_.m, bias_);
  for (int64_t first = 0; first < p_.m; first += 3) {
    for (const int64_t m : {int64_t{1}, (p_.m - first + 1) / 2, p_.m - first}) {
      const std::vector<float> part = amx_.multiply(x_, first, m, bias_);
      EXPECT_EQ(std::memcmp(part.data(), all.data() + first * p_.n, part.size() * sizeof(float)), 0)
          << first << " + " << m;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OddShapes, AmxKernelTest,
                         ::testing::Values(Problem{1, 1, 1, 1}, Problem{5, 33, 31, 1}, Problem{16, 32, 32, 1},
                                           Problem{17, 40, 65, 1}, Problem{33, 70, 120, 8},
                                           Problem{50, 64, 256, 8}, Problem{64, 31, 45, 5},
                                           Problem{75, 97, 330, 2}, Problem{40, 260, 1100, 1},
                                           Problem{40, 257, 1300, 2}));

// Codes of every format: 45 rows, groups that begin before the weight and straddle its slices, an odd number of columns.
class AmxCodes : public ::testing::TestWithParam<testing::CodeCase> {
 protected:
  static constexpr int64_t rows_ = 45, n_ = 41, k_ = 384;
  static constexpr float input_scale_ = 0.02f;

  Weight weight(Ops& ops, IndexRange columns, int slices) const {
    return testing::packed_columns(ops, matrix_, DType::bf16, columns, slices, case_.rule, input_scale_);
  }
  Tensor multiply(Ops& ops, ConstTensorView x, const Weight& weight, ConstTensorView maxima = {}) {
    Tensor out(device_, DType::fp32, {x.shape[0], weight.rows});
    ops.matmul(testing::PoisonedRows(device_, x).view(), weight, {}, out, maxima);
    return out;
  }

  const testing::CodeCase case_ = GetParam();
  const int64_t group_ = case_.rule == ActivationRule::none        ? 32
                         : case_.rule == ActivationRule::per_group ? 128
                                                                   : -1;
  const testing::CodeMatrix matrix_{case_.format, n_, k_, group_, case_.zeros, case_.scale(DType::fp16), 3};
  CpuDevice device_{"test"};
  cpu::CpuOps ops_{device_, std::make_unique<ThreadPool>(2), CpuPath::amx};
  ReferenceOps reference_{device_};
  const Tensor x_ = testing::random_tensor(device_, DType::bf16, {rows_, k_}, 1);
};

TEST_P(AmxCodes, MultiplyAsDoublePrecisionDoesAndARowHasTheSameBitsInAnyBatch) {
  const int slices = case_.rule == ActivationRule::per_group ? 1 : 8;
  const Weight whole = weight(ops_, {0, k_}, slices);
  const Tensor all = multiply(ops_, x_, whole);
  ASSERT_NO_FATAL_FAILURE(testing::expect_product(x_, matrix_, case_.rule, input_scale_, {}, all, 0x1p-24));
  for (const int64_t m : {1, 16, 17, 33}) {
    const Tensor part = multiply(ops_, x_.view().rows(rows_ - m, m), whole);
    EXPECT_TRUE(testing::same_bits(part, all.view().rows(rows_ - m, m))) << m << " rows";
  }
  if (case_.format == WeightFormat::int8 && case_.rule != ActivationRule::none) {
    EXPECT_TRUE(testing::same_bits(all, multiply(reference_, x_, weight(reference_, {0, k_}, slices))));
  }
}

// A slice of more than one block of K: two tiles meet each block, one tile alone takes the slice whole. With fewer panels every tile
// would be a task of its own.
TEST_P(AmxCodes, HaveTheSameBitsWhereASliceIsCutIntoBlocks) {
  constexpr int64_t n = 257, k = 1184;
  const testing::CodeMatrix wide{case_.format, n, k, group_, case_.zeros, case_.scale(DType::fp16), 5};
  const Tensor x = testing::random_tensor(device_, DType::bf16, {rows_, k}, 6);
  const Weight whole = testing::packed_columns(ops_, wide, DType::bf16, {0, k}, 1, case_.rule, input_scale_);
  const Tensor all = multiply(ops_, x, whole);
  ASSERT_NO_FATAL_FAILURE(testing::expect_product(x, wide, case_.rule, input_scale_, {}, all, 0x1p-24));
  EXPECT_TRUE(testing::same_bits(multiply(ops_, x.view().rows(7, 1), whole), all.view().rows(7, 1)));
}

TEST_P(AmxCodes, ShardsAddedByTheTreeHaveTheBitsOfOneWeight) {
  const int slices = case_.rule == ActivationRule::per_group ? 1 : 8,
            shards = case_.rule == ActivationRule::per_group ? 1 : 4;
  const Tensor all = multiply(ops_, x_, weight(ops_, {0, k_}, slices));
  Tensor maxima(device_, DType::fp32, {1, rows_});
  ops_.row_abs_maxima(x_, maxima.view().reshaped({rows_}));
  std::vector<Tensor> sums;
  for (int64_t shard = 0; shard < shards; ++shard) {
    const IndexRange columns{shard * k_ / shards, (shard + 1) * k_ / shards};
    Tensor part(device_, DType::bf16, {rows_, columns.size()});
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t c = 0; c < columns.size(); ++c)
        testing::set(part, row * columns.size() + c, testing::get(x_, row * k_ + columns.begin + c));
    sums.push_back(multiply(ops_, part, weight(ops_, columns, slices / shards), maxima));
  }
  for (size_t stride = 1; stride < sums.size(); stride *= 2)
    for (size_t i = 0; i + stride < sums.size(); i += 2 * stride)
      ops_.add(sums[i], sums[i + stride], sums[i]);
  EXPECT_TRUE(testing::same_bits(sums[0], all));
}

INSTANTIATE_TEST_SUITE_P(Every, AmxCodes, ::testing::ValuesIn(testing::code_cases()));

}  // namespace
}  // namespace maniple
