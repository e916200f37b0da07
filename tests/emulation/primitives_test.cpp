#include <emulation/device_test.hpp>
#include <emulation/primitive_kernels.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace maniple {
namespace {

using testing::data;
using testing::uniform;

// Eight orders of threads.
class Primitives : public testing::DeviceTest {
 protected:
  device::Stream stream() { return device().stream(); }
  template <typename T>
  Tensor uploaded(const std::vector<T>& values) {
    return testing::uploaded(device().memory(), values);
  }
  template <typename T>
  std::vector<T> downloaded(const Tensor& tensor) {
    return testing::downloaded<T>(device().memory(), tensor);
  }

  template <typename T>
  void expect_product(DType dtype, bool transposed);
};
INSTANTIATE_TEST_SUITE_P(Orders, Primitives, ::testing::Range(uint64_t{0}, uint64_t{8}));

std::vector<float> numbers(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = uniform(seed, i);
  return values;
}

TEST_P(Primitives, FreshMemoryIsNotWhatWasThereBefore) {
  constexpr size_t bytes = 1 << 20;
  const std::vector<uint8_t> filled(bytes, 0xff);
  for (int i = 0; i < 2; ++i) {
    Tensor fresh(device().memory(), DType::uint8, {bytes});
    EXPECT_EQ(downloaded<uint8_t>(fresh), filled) << i;
    device().memory().clear(fresh.view().data, bytes);
  }
}

TEST_P(Primitives, ABarrierOrdersSharedMemory) {
  const std::vector<float> values = numbers(128, 1);
  Tensor in = uploaded(values), out = uploaded(std::vector<float>(128));
  cuda::reversed_through_shared(stream(), data<float>(in), data<float>(out));
  EXPECT_EQ(downloaded<float>(out), std::vector<float>(values.rbegin(), values.rend()));
}

TEST_P(Primitives, LanesExchangeValuesAndVotes) {
  const std::vector<float> values = numbers(32, 2);
  Tensor in = uploaded(values), out = uploaded(std::vector<float>(6 * 32));
  cuda::exchanged_in_warp(stream(), data<float>(in), data<float>(out));
  const std::vector<float> found = downloaded<float>(out);
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(found[32 * i + lane], values[(lane + i) % 32]);
    EXPECT_EQ(found[128 + lane], values[lane ^ 5]);
    EXPECT_EQ(found[160 + lane], values[lane] > 0 ? 1 : 0);
  }
}

TEST_P(Primitives, AsynchronousCopiesArriveAndInvalidOnesAreZeroAndReadNothing) {
  for (const int count : {4, 128, 132, 1000})
    for (const int valid : {4, std::max(4, count - 4), count}) {
      std::vector<float> expected = numbers(static_cast<size_t>(valid), 3);
      Tensor in = uploaded(expected), out = uploaded(std::vector<float>(static_cast<size_t>(count)));
      expected.resize(static_cast<size_t>(count));
      cuda::copied_in_stages(stream(), data<float>(in), data<float>(out), count, valid);
      EXPECT_EQ(downloaded<float>(out), expected);
    }
}

// Products of 16-bit values are exact in fp32: the sum of sixteen of them differs from the exact one by
// roundings of fp32 alone.
template <typename T>
void Primitives::expect_product(DType dtype, bool transposed) {
  std::vector<T> a(256), b(128), stored(128);
  for (size_t i = 0; i < a.size(); ++i) a[i] = T(uniform(4, i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = T(uniform(5, i));
  for (size_t k = 0; k < 16; ++k)
    for (size_t column = 0; column < 8; ++column)
      stored[transposed ? column * 16 + k : k * 8 + column] = b[k * 8 + column];
  const std::vector<float> before = numbers(128, 6);
  Tensor left = uploaded(a), right = uploaded(stored), out = uploaded(before);
  cuda::multiplied(stream(), dtype, left.view().data, right.view().data, transposed, data<float>(out));
  const std::vector<float> found = downloaded<float>(out);
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      double exact = static_cast<double>(before[row * 8 + column]);
      for (size_t k = 0; k < 16; ++k)
        exact += static_cast<double>(static_cast<float>(a[row * 16 + k])) *
                 static_cast<double>(static_cast<float>(b[k * 8 + column]));
      EXPECT_NEAR(found[row * 8 + column], exact, 17 * 0x1p-21) << row << ", " << column;
    }
}

TEST_P(Primitives, TensorCoresMultiplyWhatMatrixLoadsDistribute) {
  for (const bool transposed : {false, true}) {
    expect_product<BFloat16>(DType::bf16, transposed);
    expect_product<Float16>(DType::fp16, transposed);
  }
}

TEST_P(Primitives, AtomicAdditionsCountEveryThread) {
  Tensor total = uploaded(std::vector<int>(1)), out = uploaded(std::vector<int>(10));
  cuda::counted(stream(), 10, data<int>(total), data<int>(out));
  EXPECT_EQ(downloaded<int>(total), std::vector<int>(1, 640));
  std::vector<int> tickets = downloaded<int>(out);
  std::sort(tickets.begin(), tickets.end());
  for (size_t block = 1; block < tickets.size(); ++block) EXPECT_LT(tickets[block - 1], tickets[block]);
}

}  // namespace
}  // namespace maniple
