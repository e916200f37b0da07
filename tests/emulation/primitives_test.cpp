#include <emulation/primitive_kernels.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace maniple {
namespace {

using testing::uniform;

// Every test under eight orders of threads: ascending, descending and random ones.
class Primitives : public ::testing::TestWithParam<uint64_t> {
 protected:
  emulation::Order order_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Orders, Primitives, ::testing::Range(uint64_t{0}, uint64_t{8}));

std::vector<float> numbers(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = uniform(seed, i);
  return values;
}

TEST_P(Primitives, ABarrierOrdersSharedMemory) {
  const std::vector<float> in = numbers(128, 1);
  std::vector<float> out(128), expected(in.rbegin(), in.rend());
  cuda::reversed_through_shared(&order_, in.data(), out.data());
  EXPECT_EQ(out, expected);
}

TEST_P(Primitives, LanesExchangeValuesAndVotes) {
  const std::vector<float> in = numbers(32, 2);
  std::vector<float> out(6 * 32);
  cuda::exchanged_in_warp(&order_, in.data(), out.data());
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(out[32 * i + lane], in[(lane + i) % 32]);
    EXPECT_EQ(out[128 + lane], in[lane ^ 5]);
    EXPECT_EQ(out[160 + lane], in[lane] > 0 ? 1 : 0);
  }
}

TEST_P(Primitives, AsynchronousCopiesArriveAndInvalidOnesAreZero) {
  for (const int count : {4, 128, 132, 1000})
    for (const int valid : {0, 4, count - 4, count}) {
      const std::vector<float> in = numbers(static_cast<size_t>(count), 3);
      std::vector<float> out(in.size()), expected = in;
      std::fill(expected.begin() + valid, expected.end(), 0.0f);
      // What is not valid is not read: it may lie outside of the memory.
      const std::vector<float> readable(in.begin(), in.begin() + valid);
      std::vector<float> aligned_storage(readable.size() + 4);
      void* place = aligned_storage.data();
      size_t space = aligned_storage.size() * sizeof(float);
      std::align(16, readable.size() * sizeof(float), place, space);
      std::copy(readable.begin(), readable.end(), static_cast<float*>(place));
      cuda::copied_in_stages(&order_, static_cast<const float*>(place), out.data(), count, valid);
      EXPECT_EQ(out, expected);
    }
}

// bf16 and fp16 values have short products: sixteen of them differ from the exact sum by roundings of fp32
// alone.
template <typename T>
void expect_product(emulation::Order& order, DType dtype, bool transposed) {
  std::vector<T> a(256), b(128), stored(128);
  for (size_t i = 0; i < a.size(); ++i) a[i] = T(uniform(4, i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = T(uniform(5, i));
  for (size_t k = 0; k < 16; ++k)
    for (size_t column = 0; column < 8; ++column)
      stored[transposed ? column * 16 + k : k * 8 + column] = b[k * 8 + column];
  const std::vector<float> before = numbers(128, 6);
  std::vector<float> out = before;
  cuda::multiplied(&order, dtype, a.data(), stored.data(), transposed, out.data());
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      double exact = static_cast<double>(before[row * 8 + column]);
      for (size_t k = 0; k < 16; ++k)
        exact +=
            static_cast<double>(static_cast<float>(a[row * 16 + k])) * static_cast<float>(b[k * 8 + column]);
      EXPECT_NEAR(out[row * 8 + column], exact, 17 * 0x1p-23) << row << ", " << column;
    }
}

TEST_P(Primitives, TensorCoresMultiplyWhatMatrixLoadsDistribute) {
  for (const bool transposed : {false, true}) {
    expect_product<BFloat16>(order_, DType::bf16, transposed);
    expect_product<Float16>(order_, DType::fp16, transposed);
  }
}

TEST_P(Primitives, AtomicAdditionsCountEveryThread) {
  int total = 0;
  std::vector<int> tickets(10);
  cuda::counted(&order_, 10, &total, tickets.data());
  EXPECT_EQ(total, 640);
  std::sort(tickets.begin(), tickets.end());
  for (size_t block = 1; block < tickets.size(); ++block) EXPECT_LT(tickets[block - 1], tickets[block]);
}

TEST(Float16, RoundsToNearestEvenAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(value))));
      continue;
    }
    ASSERT_EQ(Float16(value).bits, bits);
    if ((bits & 0x7fffu) >= 0x7bffu) continue;
    Float16 next;
    next.bits = static_cast<uint16_t>(bits + 1);
    const float middle = (value + static_cast<float>(next)) / 2;
    ASSERT_EQ(Float16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Float16(std::nextafter(middle, value)).bits, bits);
    ASSERT_EQ(Float16(std::nextafter(middle, static_cast<float>(next))).bits, bits + 1);
  }
  EXPECT_EQ(Float16(65519.9f).bits, 0x7bffu);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(Float16(-1e30f).bits, 0xfc00u);
}

}  // namespace
}  // namespace maniple
