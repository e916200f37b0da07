// The AMX path over emulated tiles: every machine runs the source that AMX machines run. This binary defines
// its own matmul_bf16_amx, so the linker does not take the library's.

#include <support/amx_emulation.hpp>

#include <kernels/cpu/cpu_device.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/matmul_amx.inl>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace maniple {

void cpu::matmul_bf16_amx(const MatmulBlock& block) { multiply_block<AmxKernel<EmulatedTiles>>(block); }

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

class AmxKernelTest : public testing::TestWithParam<Problem> {
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
                         testing::Values(Problem{1, 1, 1, 1}, Problem{5, 33, 31, 1}, Problem{16, 32, 32, 1},
                                         Problem{17, 40, 65, 1}, Problem{33, 70, 120, 8},
                                         Problem{50, 64, 256, 8}, Problem{64, 31, 45, 5},
                                         Problem{75, 97, 330, 2}));

}  // namespace
}  // namespace maniple
