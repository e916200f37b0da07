#include <kernels/code_products.hpp>
#include <kernels/subjects.hpp>
#include <support/cover.hpp>

#include <numeric>

namespace maniple {
namespace {

using namespace testing;

class Codes : public Conformance {
 protected:
  // What codes times scales are rounded to, where a row has several scales.
  static DType elements(DType dtype) { return GetParam().kind == BackendKind::cuda ? dtype : DType::fp32; }
};

INSTANTIATE_TEST_SUITE_P(Every, Codes, ::testing::ValuesIn(all_subjects()), name_of_subject);

Tensor product(Ops& ops, ConstTensorView x, const Weight& weight, ConstTensorView bias, DType out_type,
               ConstTensorView row_maxima = {}) {
  const PoisonedRows rows(ops.device(), x);
  const Shape shape{x.shape[0], weight.rows};
  GuardedTensor guarded(ops.device(), out_type, shape);
  ops.matmul(rows.view(), weight, bias, guarded.view(), row_maxima);
  EXPECT_TRUE(guarded.intact());
  Tensor out(ops.device(), out_type, shape);
  std::memcpy(out.view().data, guarded.view().data, out.view().bytes());
  return out;
}

// Seeds of shapes, for each format and rule.
const std::vector<uint64_t> shapes_of_case{1, 2, 3, 4, 5, 6, 7};

struct Drawn {
  int64_t n, k, group, first_column;
  int slices;
  DType scale, dtype, out;
  bool biased;

  Drawn(const CodeCase& c, uint64_t seed, const std::vector<DType>& types) {
    uint64_t state = seed;
    const auto one_of = [&]<typename T>(std::initializer_list<T> values) {
      return *(values.begin() + hashed(++state * 977 + seed) % values.size());
    };
    n = one_of({1, 31, 32, 33, 100});
    slices = one_of({1, 1, 2, 4, 8});
    group = one_of({16, 32, 64, 128, -1});
    first_column = group < 0 ? 0 : one_of({0, 0, 8, 40});
    const bool whole_row = c.rule == ActivationRule::fixed || c.rule == ActivationRule::per_token;
    if (whole_row) group = -1, first_column = 0;
    if (c.rule == ActivationRule::per_group) {
      group = 128, first_column = 0;
      k = slices == 1 ? 8 + static_cast<int64_t>(hashed(seed) % 1000) : 128 * slices;
    } else {
      k = (1 + static_cast<int64_t>(hashed(seed) % static_cast<uint64_t>(1100 / slices))) * slices;
    }
    scale = c.scale(one_of({DType::bf16, DType::fp16, DType::fp32}));
    dtype = types[hashed(++state) % types.size()];
    out = one_of({dtype, DType::fp32});
    biased = one_of({false, true});
  }
};

// A weight whose first group is cut: columns [first_column, first_column + k) of a larger matrix.
struct Case {
  CodeMatrix whole;
  Weight weight;

  Case(Ops& ops, const CodeCase& c, const Drawn& drawn, uint64_t seed)
      : whole(c.format, drawn.n, drawn.first_column + drawn.k, drawn.group, c.zeros, drawn.scale, seed),
        weight(packed_columns(ops, whole, drawn.dtype, {drawn.first_column, drawn.first_column + drawn.k},
                              drawn.slices, c.rule, 0.013f)) {}
};

// The product with columns [first, columns) is that of inputs that are zero before.
Tensor with_zeros_before(Device& device, ConstTensorView x, int64_t first) {
  Tensor wide = zeroed(device, x.dtype, {x.shape[0], first + x.shape[1]});
  for (int64_t row = 0; row < x.shape[0]; ++row)
    for (int64_t c = 0; c < x.shape[1]; ++c)
      set(wide, row * (first + x.shape[1]) + first + c, get(x, row * x.shape[1] + c));
  return wide;
}

TEST_P(Codes, AgreeWithDoublePrecisionAndARowDoesNotDependOnTheNumberOfRows) {
  constexpr int64_t all_rows = 100;
  for (size_t kind = 0; kind < code_cases().size(); ++kind)
    for (const uint64_t shape : sampled(shapes_of_case, 3)) {
      const CodeCase& c = code_cases()[kind];
      const uint64_t seed = shapes_of_case.size() * kind + shape;
      const Drawn drawn(c, seed, activation_types());
      SCOPED_TRACE(fmt::format("{}: n {} k {} + {} group {} slices {} scales {} {} -> {}", to_string(c),
                               drawn.n, drawn.first_column, drawn.k, drawn.group, drawn.slices,
                               name_of(drawn.scale), name_of(drawn.dtype), name_of(drawn.out)));
      const Case made(ops(), c, drawn, seed);
      Tensor x = random_tensor(device(), drawn.dtype, {all_rows, drawn.k}, seed + 1);
      fill(x.view().rows(3, 1), 0);
      const Tensor bias = drawn.biased ? random_tensor(device(), DType::fp32, {drawn.n}, 3) : Tensor();
      const auto expect_exact = [&](ConstTensorView out) {
        expect_product(with_zeros_before(device(), x, drawn.first_column).view().rows(0, 13), made.whole,
                       c.rule, 0.013f, bias, out.rows(0, 13), rounding(drawn.out), elements(drawn.dtype));
      };
      const Tensor all = product(ops(), x, made.weight, bias, drawn.out);
      ASSERT_NO_FATAL_FAILURE(expect_exact(all));
      if (promises_bits()) {
        for (const int64_t m : {1, 2, 7, 12, 13, 32, 64})
          for (const int64_t first : {int64_t{0}, all_rows - m}) {
            const Tensor part = product(ops(), x.view().rows(first, m), made.weight, bias, drawn.out);
            ASSERT_TRUE(same_bits(part, all.view().rows(first, m))) << m << " rows from " << first;
          }
        continue;
      }
      // A GPU has tensor cores for up to 64 rows, and a library for more and for fp32.
      const Tensor few = product(ops(), x.view().rows(0, 64), made.weight, bias, drawn.out);
      ASSERT_NO_FATAL_FAILURE(expect_exact(few));
      for (const int64_t m : {1, 7, 13, 32}) {
        const Tensor part = product(ops(), x.view().rows(64 - m, m), made.weight, bias, drawn.out);
        ASSERT_TRUE(drawn.dtype == DType::fp32 || same_bits(part, few.view().rows(64 - m, m)))
            << m << " rows";
      }
    }
}

// Tiles of AMX take subnormals for zero.
TEST_P(Codes, TheBitsOfTinyInputsDoNotDependOnTheNumberOfRowsEither) {
  if (!promises_bits()) return;
  constexpr int64_t n = 33, k = 96, all_rows = 32;
  for (const CodeCase& c : code_cases()) {
    if (c.rule != ActivationRule::none) continue;
    const CodeMatrix matrix(c.format, n, k, 32, c.zeros, c.scale(DType::fp32), 8);
    const Weight weight = packed_columns(ops(), matrix, DType::bf16, {0, k}, 1);
    for (const float scale : {0x1p-98f, 0x1p-118f, 0x1p-126f}) {
      const Tensor x = random_tensor(device(), DType::bf16, {all_rows, k}, 9, scale);
      const Tensor all = product(ops(), x, weight, {}, DType::fp32);
      for (const int64_t m : {1, 2, 3, 6, 7})
        EXPECT_TRUE(
            same_bits(product(ops(), x.view().rows(5, m), weight, {}, DType::fp32), all.view().rows(5, m)))
            << to_string(c) << ": " << m << " rows of some " << scale;
    }
  }
}

TEST_P(Codes, IntegerProductsHaveTheBitsOfTheReference) {
  const Backend reference = backend_of(BackendKind::reference);
  for (const CodeCase& c : code_cases()) {
    if (c.format != WeightFormat::int8 || c.rule == ActivationRule::none) continue;
    for (uint64_t seed = 100; seed < 106; ++seed) {
      Drawn drawn(c, seed, {DType::bf16, DType::fp32});
      if (!promises_bits()) drawn.slices = 1;  // slices have no effect
      const CodeMatrix matrix(c.format, drawn.n, drawn.k, -1, false, drawn.scale, seed);
      const Tensor x = random_tensor(device(), drawn.dtype, {17, drawn.k}, seed, 3);
      const auto result = [&](Ops& of) {
        return product(of, x,
                       packed_columns(of, matrix, drawn.dtype, {0, drawn.k}, drawn.slices, c.rule, 0.02f), {},
                       drawn.out);
      };
      EXPECT_TRUE(same_bits(result(ops()), result(*reference.ops))) << "seed " << seed;
    }
  }
}

// More threads take fewer rows at once: of 250 rows, CPUs widen codes once for all, or for each tile.
TEST_P(Codes, DoNotDependOnTheNumberOfThreads) {
  for (const CodeCase& c : code_cases())
    for (const int64_t m : sampled<int64_t>({1, 33, 250}, 1)) {
      const int64_t group = c.rule == ActivationRule::none        ? 32
                            : c.rule == ActivationRule::per_group ? 128
                                                                  : -1;
      const CodeMatrix matrix(c.format, 515, 256, group, c.zeros, c.scale(DType::fp16), 5);
      std::vector<Tensor> results;
      std::vector<Backend> backends;
      for (const int threads : {1, 3, 5}) {
        Ops& other = *backends.emplace_back(with_threads(threads)).ops;
        const Tensor x = random_tensor(other.device(), DType::bf16, {m, 256}, 1);
        results.push_back(product(other, x, packed_columns(other, matrix, DType::bf16, {0, 256}, 2, c.rule),
                                  {}, DType::bf16));
      }
      EXPECT_TRUE(same_bits(results[0], results[1])) << to_string(c);
      EXPECT_TRUE(same_bits(results[0], results[2])) << to_string(c);
      results.clear();
    }
}

// A run's scale multiplies its fp32 sum, so elements of W may lie outside of fp32. A GPU's elements hold their scale.
TEST_P(Codes, EveryFourBitFloatHasEveryScale) {
  constexpr int64_t k = 32;
  std::vector<int> scales{0, 1, 100, 127, 150, 254};
  if (GetParam().kind == BackendKind::cuda) scales.pop_back();
  const auto n = static_cast<int64_t>(scales.size());
  CodeMatrix matrix(WeightFormat::mxfp4, n, k, 32, false, DType::e8m0, 1);
  for (size_t row = 0; row < scales.size(); ++row)
    matrix.scales[row] = std::exp2f(static_cast<float>(scales[row] - 127));
  for (int64_t i = 0; i < n * k; ++i) matrix.codes[static_cast<size_t>(i)] = i % 16;
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    Tensor x = zeroed(device(), dtype, {k, k});
    for (int64_t i = 0; i < k; ++i) set(x, i * k + i, 0x1.4p-4F);
    const Weight weight = packed_columns(ops(), matrix, dtype, {0, k}, 1);
    for (const int64_t rows : {int64_t{1}, k}) {
      const Tensor out = product(ops(), x.view().rows(k - rows, rows), weight, {}, DType::fp32);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t row = 0; row < n; ++row)
          ASSERT_EQ(get(out, i * n + row), 0x1.4p-4 * std::ldexp(matrix.value(row, k - rows + i),
                                                                 scales[static_cast<size_t>(row)] - 127))
              << "scale " << scales[static_cast<size_t>(row)] << ", column " << k - rows + i;
    }
  }
}

// Inputs of one: every code, every zero and scale comes through with one rounding.
TEST_P(Codes, EveryCodeIsItsValue) {
  constexpr int64_t k = 256, n = 33;
  for (const CodeCase& c : code_cases())
    for (const DType dtype : {DType::bf16, DType::fp32}) {
      if (c.rule != ActivationRule::none) continue;
      SCOPED_TRACE(to_string(c));
      CodeMatrix matrix(c.format, n, k, 64, c.zeros, c.scale(DType::fp16), 9);
      for (int64_t i = 0; i < n * k; ++i) {
        const auto code = static_cast<uint8_t>(bits_of(c.format) == 4 ? (i + i / k) % 16 : i + i / k);
        matrix.codes[static_cast<size_t>(i)] =
            c.format == WeightFormat::fp8 && (code & 0x7f) == 0x7f ? uint8_t{0x80} : code;
      }
      const Weight weight = packed_columns(ops(), matrix, dtype, {0, k}, 1);
      Tensor x = zeroed(device(), dtype, {k, k});
      for (int64_t i = 0; i < k; ++i) set(x, i * k + i, 1);
      const auto expect_weights = [&](ConstTensorView out, int64_t first) {
        for (int64_t i = 0; i < out.shape[0]; ++i)
          for (int64_t row = 0; row < n; ++row)
            ASSERT_EQ(get(out, i * n + row), rounded(elements(dtype), matrix.weight(row, first + i)))
                << "column " << first + i;
      };
      ASSERT_NO_FATAL_FAILURE(expect_weights(product(ops(), x, weight, {}, DType::fp32), 0));
      for (int64_t i = 0; i < k; i += 7)
        ASSERT_NO_FATAL_FAILURE(
            expect_weights(product(ops(), x.view().rows(i, 1), weight, {}, DType::fp32), i));
      // The same as a table.
      std::vector<int32_t> ids(static_cast<size_t>(n));
      std::iota(ids.begin(), ids.end(), 7);
      Tensor rows(device(), dtype, {n, k});
      ops().embed(int_tensor(device(), ids), weight, {7, 7 + n}, rows.view());
      for (int64_t i = 0; i < n * k; ++i)
        ASSERT_EQ(get(rows, i), rounded(dtype, matrix.weight(i / k, i % k)));
    }
}

// Groups whose largest input is 448, just above, and where it is a power of two, or tiny: beside random ones.
TEST_P(Codes, InputsOfGroupsMayHavePowersOfTwoAsScales) {
  constexpr int64_t rows = 9, n = 33, k = 640;
  for (const DType dtype : sampled(activation_types(), 2)) {
    CodeMatrix matrix(WeightFormat::fp8, n, k, 128, false, DType::fp32, 9);
    Tensor x = random_tensor(device(), dtype, {rows, k}, 5);
    fill(x.view().rows(2, 1), 0);
    set(x, 3 * k, 448), set(x, 3 * k + 128, 450), set(x, 3 * k + 256, 512), set(x, 3 * k + 384, 1e-6f);
    const auto multiply = [&] {
      const Weight weight = packed_columns(ops(), matrix, dtype, {0, k}, 1, ActivationRule::per_group);
      return product(ops(), x, weight, {}, DType::fp32);
    };
    const Tensor plain = multiply();
    matrix.power_scales = true;
    const Tensor powers = multiply();
    EXPECT_FALSE(same_bits(powers, plain)) << name_of(dtype);
    ASSERT_NO_FATAL_FAILURE(expect_product(x, matrix, ActivationRule::per_group, 1, {}, powers,
                                           rounding(DType::fp32), elements(dtype)));
  }
}

// Where both operands are codes a GPU's library multiplies them themselves, if it was announced: with nothing rounded on the way.
TEST_P(Codes, AnnouncedProductsAreThoseOfTheCodes) {
  constexpr int64_t rows = 77;
  for (const CodeCase& c : code_cases())
    for (const int64_t n : {272, 100})
      for (const bool blocks_differ : {false, true}) {
        const bool by_group = c.rule == ActivationRule::per_group;
        if (c.rule == ActivationRule::none || (blocks_differ && !by_group)) continue;
        SCOPED_TRACE(fmt::format("{}: {} columns{}", to_string(c), n, blocks_differ ? ", rows differ" : ""));
        const int64_t k = by_group ? 640 : 332;
        CodeMatrix matrix(c.format, n, k, by_group ? 128 : -1, false, DType::bf16, 7);
        if (by_group)
          for (int64_t row = 0; row < n; ++row)
            for (int64_t g = 0; g < matrix.groups(); ++g)
              matrix.scales[static_cast<size_t>(row * matrix.groups() + g)] =
                  std::exp2f(static_cast<float>((row / (blocks_differ ? 64 : 128) + 2 * g) % 7 - 9));
        const Weight weight = packed_columns(ops(), matrix, DType::bf16, {0, k}, 1, c.rule, 0.02f);
        const Tensor x = random_tensor(device(), DType::bf16, {rows, k}, 1),
                     bias = random_tensor(device(), DType::fp32, {n}, 3);
        Tensor out(device(), DType::bf16, {rows, n});
        ops().prepare_matmul(x.view(), weight, bias.view(), out.view());
        const bool widened = by_group && (blocks_differ || n % 16 != 0);
        ASSERT_NO_FATAL_FAILURE(expect_product(
            x.view().rows(0, 70), matrix, c.rule, 0.02f, bias,
            product(ops(), x.view().rows(0, 70), weight, bias, DType::bf16), rounding(DType::bf16),
            GetParam().emulated && !widened ? DType::fp32 : elements(DType::bf16)));
      }
}

Tensor columns_of(Device& device, ConstTensorView matrix, IndexRange columns) {
  Tensor part(device, matrix.dtype, {matrix.shape[0], columns.size()});
  for (int64_t row = 0; row < matrix.shape[0]; ++row)
    for (int64_t c = 0; c < columns.size(); ++c)
      set(part, row * columns.size() + c, get(matrix, row * matrix.shape[1] + columns.begin + c));
  return part;
}

// What tensor-parallel ranks compute: each some columns, rounded by the maxima of all; then the tree.
Tensor sharded_product(Ops& ops, ConstTensorView x, const CodeMatrix& matrix, ActivationRule rule, int shards,
                       int slices) {
  const int64_t part = x.shape[1] / shards, tokens = x.shape[0];
  Tensor maxima(ops.device(), DType::fp32, {shards, tokens});
  std::vector<Tensor> inputs, sums;
  for (int64_t shard = 0; shard < shards; ++shard) {
    inputs.push_back(columns_of(ops.device(), x, {shard * part, (shard + 1) * part}));
    ops.row_abs_maxima(inputs.back(), maxima.view().rows(shard, 1).reshaped({tokens}));
  }
  for (int64_t shard = 0; shard < shards; ++shard) {
    const Weight weight = packed_columns(ops, matrix, x.dtype, {shard * part, (shard + 1) * part},
                                         slices / shards, rule, 0.01f);
    sums.push_back(
        product(ops, inputs[static_cast<size_t>(shard)], weight, {}, DType::fp32,
                rule == ActivationRule::per_token ? ConstTensorView(maxima.view()) : ConstTensorView()));
  }
  for (size_t stride = 1; stride < sums.size(); stride *= 2)
    for (size_t i = 0; i + stride < sums.size(); i += 2 * stride) ops.add(sums[i], sums[i + stride], sums[i]);
  return std::move(sums[0]);
}

TEST_P(Codes, ShardsAddedByTheTreeHaveTheBitsOfOneWeightOrAreWithinBounds) {
  for (const CodeCase& c : code_cases())
    for (const int64_t k : {352, 1024})
      for (const DType dtype : sampled<DType>({DType::bf16, DType::fp32}, 1)) {
        const bool by_group = c.rule == ActivationRule::per_group;
        if (by_group && k % 128 != 0) continue;
        // Groups of 32 and 128 straddle slices of 44.
        for (const int64_t group : {int64_t{32}, int64_t{128}, int64_t{-1}}) {
          if (by_group ? group != 128 : c.rule != ActivationRule::none && group != -1) continue;
          const CodeMatrix matrix(c.format, 33, k, group, c.zeros, c.scale(DType::bf16), 21);
          const Tensor x = random_tensor(device(), dtype, {3, k}, 1);
          const Tensor whole = sharded_product(ops(), x, matrix, c.rule, 1, 8);
          for (const int shards : sampled<int>({2, 4, 8}, GetParam().emulated ? 1 : 3)) {
            SCOPED_TRACE(fmt::format("{} {} / {} group {}", to_string(c), k, shards, group));
            const Tensor sum = sharded_product(ops(), x, matrix, c.rule, shards, 8);
            if (promises_bits())
              EXPECT_TRUE(same_bits(sum, whole));
            else
              ASSERT_NO_FATAL_FAILURE(
                  expect_product(x, matrix, c.rule, 0.01f, {}, sum, rounding(DType::fp32), elements(dtype)));
          }
        }
      }
}

TEST_P(Codes, AnOrderOfTheInputsIsAPermutationOfTheColumns) {
  constexpr int64_t n = 33, k = 96, tokens = 5, ranks = 2;
  for (const CodeCase& c : code_cases()) {
    if (c.rule == ActivationRule::per_group) continue;
    const CodeMatrix matrix(c.format, n, k, -1, c.zeros, c.scale(DType::bf16), 31);
    CodeMatrix sorted = matrix;
    std::vector<int32_t> order(k);
    for (int64_t i = 0; i < k; ++i) order[static_cast<size_t>(i)] = static_cast<int32_t>(i * 35 % k);
    for (int64_t row = 0; row < n; ++row)
      for (int64_t i = 0; i < k; ++i)
        sorted.codes[static_cast<size_t>(row * k + i)] =
            matrix.codes[static_cast<size_t>(row * k + order[static_cast<size_t>(i)])];
    const Tensor x = random_tensor(device(), DType::bf16, {tokens, k}, 1);
    Tensor by_rank(device(), DType::bf16, {ranks, tokens, k / ranks}),
        gathered(device(), DType::bf16, {tokens, k});
    for (int64_t rank = 0; rank < ranks; ++rank)
      std::memcpy(by_rank.view().rows(rank, 1).data,
                  columns_of(device(), x, {rank * k / ranks, (rank + 1) * k / ranks}).view().data,
                  by_rank.view().rows(rank, 1).bytes());
    ops().gather_columns(by_rank, int_tensor(device(), order), gathered.view());
    const auto result = [&](ConstTensorView inputs, const CodeMatrix& of) {
      return product(ops(), inputs, packed_columns(ops(), of, DType::bf16, {0, k}, 1, c.rule, 0.02f), {},
                     DType::fp32);
    };
    const Tensor ordered = result(gathered, sorted), plain = result(x, matrix);
    if (c.format == WeightFormat::int8 && c.rule != ActivationRule::none)
      EXPECT_TRUE(same_bits(ordered, plain)) << to_string(c);
    else
      ASSERT_NO_FATAL_FAILURE(expect_product(x, matrix, c.rule, 0.02f, {}, ordered, rounding(DType::fp32)))
          << to_string(c);
  }
}

TEST_P(Codes, MaximaOfRowsAreExactAndRowsOfNansSpoilNoOther) {
  for (const DType dtype : activation_types()) {
    Tensor x = random_tensor(device(), dtype, {13, 160}, 1);
    fill(x.view().rows(4, 1), 0);
    Tensor maxima(device(), DType::fp32, {13});
    ops().row_abs_maxima(x, maxima.view());
    for (int64_t row = 0; row < 13; ++row) {
      float largest = 0;
      for (int64_t i = 0; i < 160; ++i) largest = std::max(largest, std::abs(get(x, row * 160 + i)));
      EXPECT_EQ(get(maxima, row), largest);
    }
    set(x, 7 * 160 + 3, std::numeric_limits<float>::quiet_NaN());
    ops().row_abs_maxima(x, maxima.view());
    EXPECT_TRUE(std::isnan(get(maxima, 7)));
    set(x, 7 * 160 + 3, 0);
    for (const CodeCase& c : code_cases()) {
      const int64_t group = c.rule == ActivationRule::none || c.rule == ActivationRule::per_group ? 32 : -1;
      const Weight weight =
          packed_columns(ops(), CodeMatrix(c.format, 33, 160, group, c.zeros, c.scale(DType::bf16), 2), dtype,
                         {0, 160}, 1, c.rule, 0.01f);
      const Tensor clean = product(ops(), x, weight, {}, dtype);
      Tensor spoilt(device(), dtype, {13, 160});
      std::memcpy(spoilt.view().data, x.view().data, x.view().bytes());
      fill(spoilt.view().rows(5, 1), std::numeric_limits<float>::quiet_NaN());
      const Tensor out = product(ops(), spoilt, weight, {}, dtype);
      EXPECT_TRUE(same_bits(clean.view().rows(0, 5), out.view().rows(0, 5))) << to_string(c);
      EXPECT_TRUE(same_bits(clean.view().rows(6, 7), out.view().rows(6, 7))) << to_string(c);
    }
  }
}

TEST_P(Codes, AWeightThatWasNeverPackedIsZero) {
  for (const CodeCase& c : code_cases()) {
    const int64_t group = c.rule == ActivationRule::none || c.rule == ActivationRule::per_group ? 32 : -1;
    const Tensor x = random_tensor(device(), DType::bf16, {3, 64}, 1);
    const Weight weight = ops().make_weight(
        {DType::bf16, 40, 64, 1, c.format, group, 0, c.rule, c.zeros, false, c.scale(DType::fp16)});
    for (const float value : floats_of(product(ops(), x, weight, {}, DType::fp32))) EXPECT_EQ(value, 0);
  }
}

// Rows of experts 0, 1, 2, ... of tokens in turn, as route() lays them out.
struct ThreeExperts {
  std::vector<int32_t> token_of_row, first_rows{0};
  Routing routing;

  ThreeExperts(const std::vector<int64_t>& rows, int64_t tokens) {
    for (const int64_t count : rows) {
      for (int64_t i = 0; i < count; ++i)
        token_of_row.push_back(
            static_cast<int32_t>(hashed(token_of_row.size()) % static_cast<uint64_t>(tokens)));
      first_rows.push_back(static_cast<int32_t>(token_of_row.size()));
    }
    routing.experts = {0, static_cast<int64_t>(rows.size())};
    routing.tokens = view_of(token_of_row.data(), DType::int32, {static_cast<int64_t>(token_of_row.size())});
    routing.offsets = view_of(first_rows.data(), DType::int32, {static_cast<int64_t>(first_rows.size())});
  }
};

TEST_P(Codes, GroupedProductsHaveTheBitsOfAProductForEachExpert) {
  constexpr int64_t tokens = 40, hidden = 256, width = 40, half = 64;
  for (const CodeCase& c : code_cases())
    for (const DType dtype : sampled(activation_types(), 1)) {
      SCOPED_TRACE(to_string(c));
      const bool grouped = c.rule == ActivationRule::none || c.rule == ActivationRule::per_group;
      std::vector<CodeMatrix> matrices;
      std::vector<Weight> weights;
      std::vector<const Weight*> pointers;
      for (uint64_t expert = 0; expert < 3; ++expert) {
        matrices.emplace_back(c.format, 2 * half, hidden, grouped ? 128 : -1, c.zeros, c.scale(DType::fp16),
                              50 + expert);
        weights.push_back(packed_columns(ops(), matrices.back(), dtype, {0, hidden}, 2, c.rule,
                                         0.01f * static_cast<float>(expert + 1)));
      }
      for (const Weight& weight : weights) pointers.push_back(&weight);
      const Tensor x = random_tensor(device(), dtype, {tokens, hidden}, 1);
      ThreeExperts of({1, 0, 37}, tokens);
      const int64_t rows = of.routing.rows();
      Tensor inputs(device(), dtype, {rows, hidden}), gated(device(), dtype, {rows, width}),
          out(device(), DType::fp32, {rows, 2 * half});
      ops().gather_rows(x, of.routing.tokens, inputs.view());
      const bool biased = c.zeros;
      const Tensor biases = random_tensor(device(), DType::fp32, {biased ? 3 : 0, 2 * half}, 2);
      const GateActivation activation = biased ? small_clamp : GateActivation::silu;
      const auto bias_of = [&](int64_t expert, int64_t row) {
        return biased ? get(biases, expert * 2 * half + row) : 0.0F;
      };
      ops().grouped_matmul_gate_mul(activation, PoisonedRows(device(), x).view(), of.routing, pointers,
                                    biases, gated.view());
      ops().grouped_matmul(inputs, of.routing, pointers, out.view());
      for (const int64_t expert : {0, 2}) {
        const IndexRange range = of.routing.rows_of(expert);
        const Tensor alone = product(ops(), inputs.view().rows(range.begin, range.size()),
                                     weights[static_cast<size_t>(expert)], {}, DType::fp32);
        const ConstTensorView mine = out.view().rows(range.begin, range.size());
        if (promises_bits() || dtype != DType::fp32) {
          ASSERT_TRUE(same_bits(mine, alone)) << "expert " << expert;
        } else {  // on a GPU a library makes the other
          ASSERT_NO_FATAL_FAILURE(expect_product(
              inputs.view().rows(range.begin, range.size()), matrices[static_cast<size_t>(expert)], c.rule,
              0.01f * static_cast<float>(expert + 1), {}, mine, rounding(DType::fp32)));
        }
        for (int64_t row = 0; row < range.size(); ++row)
          for (int64_t i = 0; i < width; ++i) {
            const float gate = get(mine, row * 2 * half + i) + bias_of(expert, i),
                        up = get(mine, row * 2 * half + half + i) + bias_of(expert, half + i);
            const double expected = exact_gated(activation, gate, up);
            ASSERT_NEAR(get(gated, (range.begin + row) * width + i), expected,
                        1.01 * rounding(dtype) * std::abs(expected) + 1e-6 * (1 + std::abs(up)));
          }
      }
    }
}

TEST_P(Codes, GatedProductsAgreeWithTheirSumsForAnyNumberOfRows) {
  if (GetParam().kind == BackendKind::reference) return;  // has no product of both
  constexpr int64_t k = 256, rows = 37;
  for (const CodeCase& c : code_cases())
    for (const int64_t width : {40, 96}) {
      const int64_t group = c.rule == ActivationRule::none        ? 32
                            : c.rule == ActivationRule::per_group ? 128
                                                                  : -1;
      const Weight weight =
          packed_columns(ops(), CodeMatrix(c.format, 2 * width, k, group, c.zeros, c.scale(DType::fp16), 60),
                         DType::bf16, {0, k}, 1, c.rule, 0.01f);
      const Tensor x = random_tensor(device(), DType::bf16, {rows, k}, 1, 0.2f);
      const GateActivation activation = width == 40 ? GateActivation::silu : small_clamp;
      const auto gated = [&](int64_t first, int64_t count) {
        Tensor out(device(), DType::bf16, {count, width});
        EXPECT_TRUE(ops().matmul_gate_mul(activation, x.view().rows(first, count), weight, {}, out.view()));
        return out;
      };
      const Tensor all = gated(0, rows), sums = product(ops(), x, weight, {}, DType::fp32);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < width; ++i) {
          const double gate = get(sums, row * 2 * width + i), up = get(sums, row * 2 * width + width + i);
          const double expected = exact_gated(activation, gate, up);
          ASSERT_NEAR(get(all, row * width + i), expected,
                      1.01 * 0x1p-8 * std::abs(expected) + 1e-6 * (1 + std::abs(up)))
              << to_string(c);
        }
      for (const int64_t m : {1, 3, 13})
        EXPECT_TRUE(same_bits(gated(rows - m, m), all.view().rows(rows - m, m)))
            << to_string(c) << ", " << m << " rows";
    }
}

// The row of the whole input is rounded, wherever its columns are.
TEST_P(Codes, GroupedProductsTakeTheMaximaOfAllRanks) {
  constexpr int64_t k = 128;
  for (const CodeCase& c : code_cases()) {
    if (c.rule != ActivationRule::per_token) continue;
    const CodeMatrix matrix(c.format, 33, k, -1, false, DType::bf16, 4);
    ThreeExperts of({3, 4}, 1);
    const Tensor x = random_tensor(device(), DType::bf16, {7, k}, 1);
    Tensor maxima = random_tensor(device(), DType::fp32, {2, 7}, 2);
    for (int64_t i = 0; i < 14; ++i) set(maxima, i, 1 + std::abs(get(maxima, i)));
    const Weight weight = packed_columns(ops(), matrix, DType::bf16, {0, k}, 1, c.rule);
    const std::vector<const Weight*> weights{&weight, &weight};
    Tensor out(device(), DType::fp32, {7, 33});
    ops().grouped_matmul(x, of.routing, weights, out.view(), maxima);
    EXPECT_TRUE(same_bits(out, product(ops(), x, weight, {}, DType::fp32, maxima))) << to_string(c);
    EXPECT_FALSE(same_bits(out, product(ops(), x, weight, {}, DType::fp32))) << to_string(c);
  }
}

TEST_P(Codes, TakeTheMemoryOfTheirCodesAndScales) {
  for (const CodeCase& c : code_cases()) {
    const int64_t group = c.rule == ActivationRule::none        ? 32
                          : c.rule == ActivationRule::per_group ? 128
                                                                : -1;
    const WeightShape shape{DType::bf16,         1024, 3072, 8, c.format, group, 0, c.rule, c.zeros, false,
                            c.scale(DType::fp16)};
    const double stored = static_cast<double>(shape.stored_bytes());
    EXPECT_NEAR(static_cast<double>(ops().make_weight(shape).bytes()), stored,
                GetParam().kind == BackendKind::reference ? 2 * stored : 0.01 * stored)
        << to_string(c);
  }
}

}  // namespace
}  // namespace maniple
