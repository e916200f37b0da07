// The AMX kernel over emulated tiles: the source that AMX machines run, on every machine.

#include <support/amx_emulation.hpp>

#include <kernels/cpu/cpu_device.hpp>
#include <kernels/cpu/matmul.hpp>
#include <kernels/cpu/matmul_amx.inl>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace maniple {
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

// x[first_row, ...) in tiles as matmul_kernel.hpp describes them, element by element.
std::vector<uint32_t> packed_rows(const std::vector<BFloat16>& x, int64_t first_row,
                                  const cpu::RowTiles& tiles, int64_t columns, int slices,
                                  int64_t slice_units) {
  constexpr int64_t step = 16;
  std::vector<uint32_t> packed(static_cast<size_t>(tiles.padded_rows() * slices * slice_units));
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    const int64_t first = tiles.first_row(tile), end = tiles.first_row(tile + 1);
    const int64_t height = (end - first + 15) / 16 * 16;
    for (int64_t row = first; row < end; ++row) {
      for (int64_t k = 0; k < columns; ++k) {
        const int64_t slice = k / (columns / slices), in_slice = k % (columns / slices), unit = in_slice / 2;
        const int64_t at = first * slices * slice_units + slice * slice_units * height +
                           unit / step * step * height + (row - first) * step + unit % step;
        packed[static_cast<size_t>(at)] |=
            uint32_t{x[static_cast<size_t>((first_row + row) * columns + k)].bits} << (in_slice % 2 * 16);
      }
    }
  }
  return packed;
}

class EmulatedAmx {
 public:
  EmulatedAmx(const std::vector<BFloat16>& rows, int64_t n, int64_t k, int slices)
      : weight_(cpu::make_weight(device_, CpuPath::amx, DType::bf16, n, k, slices)) {
    cpu::pack(CpuPath::amx, weight_, 0, view_of(rows.data(), DType::bf16, {n, k}));
  }

  // x[first_row, first_row + m) times the weight.
  std::vector<float> multiply(const std::vector<BFloat16>& x, int64_t first_row, int64_t m,
                              const std::vector<float>& bias) const {
    std::vector<float> out(static_cast<size_t>(m * weight_.rows));
    const int64_t slice_units = weight_.packed.shape()[2] / cpu::panel_width;
    const cpu::RowTiles tiles{m, 32, 16};
    const std::vector<uint32_t> packed =
        packed_rows(x, first_row, tiles, weight_.columns, weight_.slices, slice_units);
    const cpu::MatmulBlock block{.x = packed.data(),
                                 .tiles = tiles,
                                 .first_tile = 0,
                                 .end_tile = tiles.count(),
                                 .slices = weight_.slices,
                                 .slice_units = slice_units,
                                 .panels = reinterpret_cast<const uint32_t*>(weight_.packed.view().data),
                                 .width = weight_.rows,
                                 .bias = bias.data(),
                                 .out = out.data(),
                                 .out_stride = weight_.rows,
                                 .out_is_bf16 = false};
    cpu::multiply_block<cpu::AmxKernel<EmulatedTiles>>(block);
    return out;
  }

 private:
  CpuDevice device_{"test"};
  Weight weight_;
};

class AmxKernelTest : public testing::TestWithParam<Problem> {
 protected:
  const Problem p_ = GetParam();
  const std::vector<BFloat16> x_ = random_values(p_.m * p_.k, 1), weight_ = random_values(p_.n * p_.k, 2);
  const std::vector<float> bias_ = std::vector<float>(static_cast<size_t>(p_.n), 0.375f);
  const EmulatedAmx amx_{weight_, p_.n, p_.k, p_.slices};
};

TEST_P(AmxKernelTest, multiplies_as_double_precision_does) {
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

TEST_P(AmxKernelTest, gives_a_row_the_same_bits_in_any_batch) {
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
                                         Problem{50, 64, 256, 8}, Problem{64, 31, 45, 5}));

}  // namespace
}  // namespace maniple
