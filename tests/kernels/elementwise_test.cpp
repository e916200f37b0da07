#include <kernels/subjects.hpp>

#include <numeric>
#include <random>

namespace maniple {
namespace {

using namespace testing;

class Elementwise : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Every, Elementwise, ::testing::ValuesIn(all_subjects()), name_of_subject);

constexpr int64_t widths[] = {1, 7, 15, 16, 17, 64, 100, 1027};
constexpr float epsilon = 1e-5f;

// A few fp32 roundings before the last one.
void expect_near(double actual, double exact, DType dtype, double roundings = 1e-6) {
  ASSERT_NEAR(actual, exact,
              (1.01 * rounding(dtype) + roundings) * std::abs(exact) + rounding_near_zero(dtype));
}

std::vector<double> exact_norm(ConstTensorView x, int64_t row, ConstTensorView weight) {
  const int64_t width = x.shape[1];
  std::vector<double> values;
  for (int64_t i = 0; i < width; ++i) values.push_back(get(x, row * width + i));
  const double squares = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(epsilon));
  for (int64_t i = 0; i < width; ++i) values[static_cast<size_t>(i)] *= scale * get(weight, i);
  return values;
}

void expect_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView out, double roundings = 1e-6) {
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    const std::vector<double> exact = exact_norm(x, row, weight);
    for (int64_t i = 0; i < x.shape[1]; ++i)
      ASSERT_NO_FATAL_FAILURE(
          expect_near(get(out, row * x.shape[1] + i), exact[static_cast<size_t>(i)], out.dtype, roundings));
  }
}

TEST_P(Elementwise, RmsNormAgreesWithDoublePrecisionAndIsRowByRow) {
  for (const DType dtype : activation_types())
    for (const int64_t width : widths) {
      SCOPED_TRACE(fmt::format("{} width {}", name_of(dtype), width));
      const Shape shape{5, width};
      const Tensor x = random_tensor(device(), dtype, shape, 1, 3),
                   weight = random_tensor(device(), DType::fp32, {width}, 2);
      GuardedTensor out(device(), dtype, shape);
      ops().rms_norm(PoisonedRows(device(), x).view(), PoisonedRows(device(), weight).view(), epsilon,
                     out.view());
      EXPECT_TRUE(out.intact());
      ASSERT_NO_FATAL_FAILURE(expect_norm(x, weight, out.view()));
      Tensor alone(device(), dtype, {1, width});
      ops().rms_norm(x.view().rows(3, 1), weight, epsilon, alone);
      EXPECT_TRUE(same_bits(alone, out.view().rows(3, 1)));
    }
}

TEST_P(Elementwise, AddRmsNormRoundsTheResidualOnceAndNormsWhatItRounded) {
  for (const DType dtype : activation_types())
    for (const DType delta_type : {dtype, DType::fp32})
      for (const int64_t width : widths) {
        SCOPED_TRACE(fmt::format("{} + {} width {}", name_of(dtype), name_of(delta_type), width));
        const Shape shape{3, width};
        const Tensor delta = random_tensor(device(), delta_type, shape, 1),
                     before = random_tensor(device(), dtype, shape, 2);
        const Tensor weight = random_tensor(device(), DType::fp32, {width}, 3);
        GuardedTensor residual(device(), dtype, shape), out(device(), dtype, shape);
        std::memcpy(residual.view().data, before.view().data, before.view().bytes());
        ops().add_rms_norm(PoisonedRows(device(), delta).view(), residual.view(), weight, epsilon,
                           out.view());
        EXPECT_TRUE(residual.intact() && out.intact());
        for (int64_t i = 0; i < shape.elements(); ++i) {
          const float sum = get(before, i) + get(delta, i);
          ASSERT_EQ(get(residual.view(), i), rounded(dtype, sum));
        }
        ASSERT_NO_FATAL_FAILURE(expect_norm(residual.view(), weight, out.view()));
      }
}

// A pipeline stage that is not the last ends with add_residual, and the next begins with rms_norm.
TEST_P(Elementwise, AddResidualAndRmsNormHaveTheBitsOfAddRmsNorm) {
  for (const DType dtype : activation_types())
    for (const DType delta_type : {dtype, DType::fp32})
      for (const int64_t width : widths) {
        SCOPED_TRACE(fmt::format("{} + {} width {}", name_of(dtype), name_of(delta_type), width));
        const Shape shape{3, width};
        const Tensor delta = random_tensor(device(), delta_type, shape, 1),
                     before = random_tensor(device(), dtype, shape, 2),
                     weight = random_tensor(device(), DType::fp32, {width}, 3);
        Tensor fused(device(), dtype, shape), norm_of_fused(device(), dtype, shape);
        GuardedTensor apart(device(), dtype, shape), norm(device(), dtype, shape);
        std::memcpy(fused.view().data, before.view().data, before.view().bytes());
        std::memcpy(apart.view().data, before.view().data, before.view().bytes());
        ops().add_rms_norm(delta, fused, weight, epsilon, norm_of_fused);
        ops().add_residual(PoisonedRows(device(), delta).view(), apart.view());
        ops().rms_norm(apart.view(), weight, epsilon, norm.view());
        EXPECT_TRUE(apart.intact() && norm.intact());
        EXPECT_TRUE(same_bits(apart.view(), fused));
        EXPECT_TRUE(same_bits(norm.view(), norm_of_fused));
      }
}

// Wider than what the threads of a block hold at once; longer sums have more roundings.
TEST_P(Elementwise, NormsOfWideRowsAgreeToo) {
  for (const DType dtype : activation_types())
    for (const int64_t width : {8192, 8200, 9001}) {
      SCOPED_TRACE(fmt::format("{} width {}", name_of(dtype), width));
      const Shape shape{2, width};
      const Tensor weight = random_tensor(device(), DType::fp32, {width}, 3),
                   delta = random_tensor(device(), DType::fp32, shape, 1);
      Tensor residual = random_tensor(device(), dtype, shape, 2), out(device(), dtype, shape);
      ops().add_rms_norm(delta, residual, weight, epsilon, out);
      ASSERT_NO_FATAL_FAILURE(expect_norm(residual, weight, out, 1e-5));
    }
}

TEST_P(Elementwise, GatesAgreeWithDoublePrecisionFromOneEndToTheOther) {
  for (const DType dtype : activation_types())
    for (const int64_t width : widths) {
      const GateActivation activation =
          width % 2 == 0 ? GateActivation::silu : GateActivation{.limit = 7, .alpha = 1.702F};
      const Shape shape{3, width};
      Tensor gate_up = random_tensor(device(), dtype, {3, 2 * width}, 1, 2);
      for (int64_t i = 0; i < width; ++i) {
        const float part = static_cast<float>(i) / static_cast<float>(width);
        set(gate_up, 2 * width + i, (-84 + 180 * part) / activation.alpha);  // as far as fp32's exponentials
        set(gate_up, 5 * width + i, 20 - 40 * part);
      }
      GuardedTensor out(device(), dtype, shape);
      ops().gate_mul(activation, PoisonedRows(device(), gate_up).view(), out.view());
      EXPECT_TRUE(out.intact());
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t i = 0; i < width; ++i) {
          const double gate = get(gate_up, 2 * row * width + i), up = get(gate_up, (2 * row + 1) * width + i);
          const double exponent = activation.alpha * gate,  // rounded, where alpha is not 1
              roundings = 1e-6 + (activation.alpha == 1 ? 0 : std::abs(exponent) * 0x1p-24);
          ASSERT_NO_FATAL_FAILURE(expect_near(get(out.view(), row * width + i),
                                              exact_gated(activation, gate, up), dtype, roundings))
              << gate;
        }
    }
}

TEST_P(Elementwise, GatesOfExtremeValuesNeitherOverflowNorLoseANan) {
  constexpr float infinity = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN();
  Tensor gate_up(device(), DType::fp32, {1, 10}), out(device(), DType::fp32, {1, 5});
  const std::vector<float> gates{-1e30f, -200, 0, 1e30f, nan};
  for (int64_t i = 0; i < 5; ++i) {
    set(gate_up, i, gates[static_cast<size_t>(i)]);
    set(gate_up, 5 + i, 1);
  }
  ops().gate_mul(GateActivation::silu, gate_up, out);
  EXPECT_NEAR(get(out, 0), 0, 1e-6);
  EXPECT_NEAR(get(out, 1), 0, 1e-30);
  EXPECT_EQ(get(out, 2), 0);
  EXPECT_EQ(get(out, 3), 1e30f);
  EXPECT_TRUE(std::isnan(get(out, 4)));
  EXPECT_LT(infinity * -1, get(out, 0));
  set(gate_up, 7, nan);
  ops().gate_mul({.limit = 7, .alpha = 1.702F}, gate_up, out);
  EXPECT_NEAR(get(out, 0), 0, 1e-6);
  EXPECT_NEAR(get(out, 1), 0, 1e-30);
  EXPECT_TRUE(std::isnan(get(out, 2)));
  EXPECT_NEAR(get(out, 3), 14, 2e-4);
  EXPECT_TRUE(std::isnan(get(out, 4)));
}

TEST_P(Elementwise, AddRoundsOnceAndWorksInPlace) {
  for (const DType dtype : activation_types())
    for (const int64_t width : {1, 17, 100, 40000}) {
      const Shape shape{3, width};
      const Tensor a = random_tensor(device(), dtype, shape, 1), b = random_tensor(device(), dtype, shape, 2);
      GuardedTensor out(device(), dtype, shape);
      ops().add(a, b, out.view());
      for (int64_t i = 0; i < shape.elements(); ++i) {
        const float sum = get(a, i) + get(b, i);
        ASSERT_EQ(get(out.view(), i), rounded(dtype, sum));
      }
      EXPECT_TRUE(out.intact());
      Tensor left = random_tensor(device(), dtype, shape, 1),
             right = random_tensor(device(), dtype, shape, 2);
      ops().add(left, b, left);
      ops().add(a, right, right);
      EXPECT_TRUE(same_bits(left, out.view()) && same_bits(right, out.view()));
    }
}

// Values of many magnitudes: another order of the additions gives other bits.
Tensor values_of_many_sizes(Device& device, DType dtype, int64_t count, std::mt19937& random) {
  Tensor values(device, dtype, {count});
  for (int64_t i = 0; i < count; ++i)
    set(values, i,
        std::ldexp(static_cast<float>(random()) * 0x1p-31f - 1.0f, static_cast<int>(random() % 24) - 12));
  return values;
}

// The tree as recursion: the left half is the largest power of two below the number of parts.
float tree_sum(DType dtype, const std::vector<float>& parts, size_t begin, size_t end) {
  if (end - begin == 1) return parts[begin];
  size_t left = 1;
  while (2 * left < end - begin) left *= 2;
  return rounded(dtype,
                 tree_sum(dtype, parts, begin, begin + left) + tree_sum(dtype, parts, begin + left, end));
}

TEST_P(Elementwise, AddTreeRoundsAtEachAdditionOfTheTreeAndWorksInPlace) {
  std::mt19937 random(std::random_device{}());
  for (const DType dtype : activation_types())
    for (const size_t num_parts : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 19})
      for (const int64_t count :
           {int64_t{1}, int64_t{17}, static_cast<int64_t>(32 + random() % 3000), int64_t{33001}}) {
        if (count > 30000 && num_parts > 5) continue;
        std::vector<Tensor> parts;
        for (size_t part = 0; part < num_parts; ++part)
          parts.push_back(values_of_many_sizes(device(), dtype, count, random));
        std::vector<ConstTensorView> views(parts.begin(), parts.end());
        GuardedTensor out(device(), dtype, {count}), copy(device(), dtype, {count});
        ops().add_tree(views, out.view(), copy.view());
        EXPECT_TRUE(out.intact() && copy.intact());
        EXPECT_TRUE(same_bits(copy.view(), out.view())) << num_parts << " parts, copied";
        std::vector<float> column(num_parts);
        for (int64_t i = 0; i < count; ++i) {
          for (size_t part = 0; part < num_parts; ++part) column[part] = get(parts[part], i);
          ASSERT_EQ(get(out.view(), i), tree_sum(dtype, column, 0, num_parts))
              << num_parts << " parts, element " << i;
        }
        const size_t place = random() % num_parts, other = (place + random() % 2) % num_parts;
        ops().add_tree(views, parts[place], place == other ? TensorView{} : parts[other].view());
        EXPECT_TRUE(same_bits(parts[place], out.view())) << num_parts << " parts, in place";
        EXPECT_TRUE(same_bits(parts[other], out.view())) << num_parts << " parts, copied in place";
      }
}

TEST_P(Elementwise, AddBiasAddsToEveryRow) {
  for (const DType dtype : activation_types())
    for (const int64_t width : widths) {
      const Shape shape{4, width};
      const Tensor before = random_tensor(device(), dtype, shape, 1),
                   bias = random_tensor(device(), DType::fp32, {width}, 2);
      Tensor x = random_tensor(device(), dtype, shape, 1);
      ops().add_bias(x, bias);
      for (int64_t i = 0; i < shape.elements(); ++i) {
        const float sum = get(before, i) + get(bias, i % width);
        ASSERT_EQ(get(x, i), rounded(dtype, sum));
      }
    }
}

TEST_P(Elementwise, GatherRowsCopiesRowsOfAnyTypeAndReadsNoOthers) {
  for (const DType dtype : activation_types()) {
    const Tensor x = random_tensor(device(), dtype, {9, 33}, 1);
    Tensor out(device(), dtype, {4, 33});
    ops().gather_rows(x, int_tensor(device(), {8, 0, 3, 3}), out);
    const std::vector<int64_t> expected{8, 0, 3, 3};
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(same_bits(out.view().rows(static_cast<int64_t>(i), 1), x.view().rows(expected[i], 1)));
    if (GetParam().kind == BackendKind::cuda) {
      ops().gather_rows(x, int_tensor(device(), {0, 9, -1, 8}), out);
      EXPECT_TRUE(same_bits(out.view().rows(1, 2), zeroed(device(), dtype, {2, 33})));
    } else {
      EXPECT_THROW(ops().gather_rows(x, int_tensor(device(), {0, 9, 0, 0}), out), Error);
    }
  }
}

TEST_P(Elementwise, DoesNotDependOnTheNumberOfThreads) {
  constexpr int64_t tokens = 67, width = 1027;
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3}) {
    const Backend backend = with_threads(threads);
    Device& other = backend.ops->device();
    const Tensor weight = random_tensor(other, DType::fp32, {width}, 3),
                 delta = random_tensor(other, DType::fp32, {tokens, width}, 1);
    Tensor residual = random_tensor(other, DType::bf16, {tokens, width}, 2),
           normed(other, DType::bf16, {tokens, width});
    backend.ops->add_rms_norm(delta, residual, weight, epsilon, normed);
    Tensor product(other, DType::bf16, {tokens, width});
    backend.ops->gate_mul(GateActivation::silu, random_tensor(other, DType::bf16, {tokens, 2 * width}, 4),
                          product);
    backend.ops->add(normed, product, normed);
    results.push_back(floats_of(normed));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(Elementwise, NoRowsAreNoWork) {
  const Tensor weight = random_tensor(device(), DType::fp32, {16}, 1);
  Tensor none(device(), DType::bf16, {0, 16});
  ops().rms_norm(none, weight, epsilon, none);
  ops().add(none, none, none);
  ops().gather_rows(random_tensor(device(), DType::bf16, {3, 16}, 2), Tensor(device(), DType::int32, {0}),
                    none);
}

}  // namespace
}  // namespace maniple
