#include <kernels/subjects.hpp>
#include <support/cover.hpp>

namespace maniple {
namespace {

using namespace testing;

class Matmul : public Conformance {
 protected:
  static void expect_close(ConstTensorView x, ConstTensorView raw, ConstTensorView bias, ConstTensorView out);
  // Emulated tensor cores are slow: one of each tile.
  static std::vector<int64_t> row_counts() {
    if (GetParam().emulated) return {2, 13, 31, 64};
    return {1, 2, 3, 5, 12, 13, 31, 33, 64};
  }
};
INSTANTIATE_TEST_SUITE_P(Every, Matmul, ::testing::ValuesIn(all_subjects()), name_of_subject);

constexpr int64_t all_rows = 97;

struct Case {
  int64_t n, k;
  int slices;
  DType dtype, out;
  bool biased;
};

std::vector<Case> cases(const std::vector<DType>& types) {
  std::vector<Case> list;
  for (const auto& [dtype, wide, n, shape] :
       each_pair(types, std::vector{false, true}, std::vector<int64_t>{1, 17, 33, 515},
                 std::vector<std::pair<int64_t, int>>{
                     {1, 1}, {7, 1}, {63, 1}, {160, 8}, {352, 4}, {1000, 2}, {1000, 8}})) {
    const auto& [k, slices] = shape;
    list.push_back({n, k, slices, dtype, wide ? DType::fp32 : dtype, (n + k) % 2 == 1});
  }
  return list;
}

Weight packed(Ops& ops, const Tensor& raw, DType dtype, int slices) {
  Weight weight = ops.make_weight({dtype, raw.shape()[0], raw.shape()[1], slices});
  ops.pack(weight, 0, {raw});
  return weight;
}

Tensor product(Ops& ops, ConstTensorView x, const Weight& weight, ConstTensorView bias, DType out_type) {
  const PoisonedRows rows(ops.device(), x);
  const Shape shape{x.shape[0], weight.rows};
  GuardedTensor guarded(ops.device(), out_type, shape);
  ops.matmul(rows.view(), weight, bias, guarded.view());
  EXPECT_TRUE(guarded.intact());
  Tensor out(ops.device(), out_type, shape);
  std::memcpy(out.view().data, guarded.view().data, out.view().bytes());
  return out;
}

// fp32 sums of k products differ from exact ones by at most (k + 8) roundings of
// the sum of magnitudes, plus one rounding of the result. On a GPU tensor cores
// truncate products instead of rounding them, and a bias has the result's type.
void Matmul::expect_close(ConstTensorView x, ConstTensorView raw, ConstTensorView bias, ConstTensorView out) {
  const int64_t k = x.shape[1], n = out.shape[1];
  const std::vector<float> xs = floats_of(x), ws = floats_of(raw), results = floats_of(out);
  for (int64_t row = 0; row < x.shape[0]; ++row)
    for (int64_t column = 0; column < n; ++column) {
      double exact = bias.empty() ? 0 : get(bias, column), magnitude = std::abs(exact);
      for (int64_t i = 0; i < k; ++i) {
        const double term = static_cast<double>(xs[static_cast<size_t>(row * k + i)]) *
                            ws[static_cast<size_t>(column * k + i)];
        exact += term;
        magnitude += std::abs(term);
      }
      double bound = static_cast<double>(k + 8) * 0x1p-24 * magnitude +
                     1.01 * rounding(out.dtype) * std::abs(exact) + rounding_near_zero(out.dtype);
      if (!promises_bits())
        bound = 2 * bound + (bias.empty() ? 0 : rounding(out.dtype) * std::abs(get(bias, column)));
      ASSERT_NEAR(results[static_cast<size_t>(row * n + column)], exact, bound)
          << "row " << row << ", column " << column;
    }
}

TEST_P(Matmul, AgreesWithDoublePrecisionAndARowDoesNotDependOnTheNumberOfRows) {
  for (const Case& c : cases(activation_types())) {
    SCOPED_TRACE(
        fmt::format("n {} k {} slices {} {} -> {}", c.n, c.k, c.slices, name_of(c.dtype), name_of(c.out)));
    const Tensor x = random_tensor(device(), c.dtype, {all_rows, c.k}, 1);
    const Tensor raw = random_tensor(device(), c.dtype, {c.n, c.k}, 2);
    const Tensor bias = c.biased ? random_tensor(device(), DType::fp32, {c.n}, 3) : Tensor();
    const Weight weight = packed(ops(), raw, c.dtype, c.slices);
    const Tensor whole = product(ops(), x, weight, bias, c.out);
    ASSERT_NO_FATAL_FAILURE(expect_close(x, raw, bias, whole));
    for (const int64_t m : row_counts())
      for (const int64_t first : {int64_t{0}, all_rows - m}) {
        const ConstTensorView rows = x.view().rows(first, m);
        const Tensor part = product(ops(), rows, weight, bias, c.out);
        if (promises_bits())
          ASSERT_TRUE(same_bits(part, whole.view().rows(first, m))) << m << " rows";
        else
          ASSERT_NO_FATAL_FAILURE(expect_close(rows, raw, bias, part)) << m << " rows";
      }
  }
}

// For backends with one kernel for both.
TEST_P(Matmul, GatedInOneAgreesWithDoublePrecision) {
  for (const DType dtype : activation_types())
    for (const int64_t m : {1, 8, 9, 65})
      for (const bool biased : {false, true}) {
        constexpr int64_t width = 45, k = 168;
        SCOPED_TRACE(fmt::format("{} x {} {}, bias: {}", m, k, name_of(dtype), biased));
        const Tensor x = random_tensor(device(), dtype, {m, k}, 1),
                     raw = random_tensor(device(), dtype, {2 * width, k}, 2);
        const Tensor bias = biased ? random_tensor(device(), DType::fp32, {2 * width}, 3) : Tensor();
        GuardedTensor out(device(), dtype, {m, width});
        const bool has_one = GetParam().kind == BackendKind::cpu ||
                             (GetParam().kind == BackendKind::cuda && dtype != DType::fp32 && m <= 8);
        const GateActivation activation = biased ? small_clamp : GateActivation::silu;
        ASSERT_EQ(ops().matmul_gate_mul(activation, PoisonedRows(device(), x).view(),
                                        packed(ops(), raw, dtype, 1), bias, out.view()),
                  has_one);
        EXPECT_TRUE(out.intact());
        if (!has_one) continue;
        const auto exact = [&](int64_t row, int64_t column) {
          double sum = biased ? get(bias, column) : 0;
          for (int64_t i = 0; i < k; ++i)
            sum += static_cast<double>(get(x, row * k + i)) * get(raw, column * k + i);
          return sum;
        };
        for (int64_t row = 0; row < m; ++row)
          for (int64_t i = 0; i < width; ++i) {
            const double expected = exact_gated(activation, exact(row, i), exact(row, width + i));
            ASSERT_NEAR(get(out.view(), row * width + i), expected,
                        rounding(dtype) * std::abs(expected) + 1e-4);
          }
      }
}

// Ranks of a tensor group have other columns, some of them no whole panels.
TEST_P(Matmul, GatedInOneARowAndAColumnDependOnThemselvesAlone) {
  if (GetParam().kind != BackendKind::cpu) GTEST_SKIP() << "a kernel of the CPU backend";
  for (const DType dtype : activation_types()) {
    constexpr int64_t m = 290, k = 168, width = 96;
    const Tensor x = random_tensor(device(), dtype, {m, k}, 1);
    const auto gated = [&](int64_t rows, int64_t first, int64_t columns) {
      Tensor raw(device(), dtype, {2 * columns, k}), out(device(), dtype, {rows, columns});
      const Tensor all = random_tensor(device(), dtype, {2 * width, k}, 2);
      for (const int64_t half : {0, 1})
        device().copy(raw.view().rows(half * columns, columns).data,
                      all.view().rows(half * width + first, columns).data, raw.view().bytes() / 2);
      EXPECT_TRUE(ops().matmul_gate_mul(GateActivation::silu, x.view().rows(m - rows, rows),
                                        packed(ops(), raw, dtype, 1), {}, out.view()));
      return floats_of(out);
    };
    const std::vector<float> whole = gated(m, 0, width);
    for (const auto& [rows, first, columns] :
         {std::tuple{1, 0, 96}, {5, 0, 45}, {33, 31, 65}, {290, 32, 64}}) {
      const std::vector<float> part = gated(rows, first, columns);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column)
          ASSERT_EQ(part[static_cast<size_t>(row * columns + column)],
                    whole[static_cast<size_t>((m - rows + row) * width + first + column)])
              << rows << " rows, column " << first + column;
    }
  }
}

TEST_P(Matmul, DoesNotDependOnTheNumberOfThreads) {
  for (const DType dtype : activation_types())
    for (const int64_t m : {1, 33}) {
      std::vector<Tensor> results;
      std::vector<Backend> backends;
      for (const int threads : {1, 3, 5}) {
        Ops& other = *backends.emplace_back(with_threads(threads)).ops;
        const Tensor x = random_tensor(other.device(), dtype, {m, 352}, 1),
                     raw = random_tensor(other.device(), dtype, {515, 352}, 2);
        results.push_back(product(other, x, packed(other, raw, dtype, 8), {}, dtype));
      }
      EXPECT_TRUE(same_bits(results[0], results[1]));
      EXPECT_TRUE(same_bits(results[0], results[2]));
      results.clear();
    }
}

TEST_P(Matmul, ARowOfNansSpoilsNoOtherRow) {
  for (const DType dtype : activation_types()) {
    Tensor x = random_tensor(device(), dtype, {13, 160}, 1);
    const Weight weight = packed(ops(), random_tensor(device(), dtype, {33, 160}, 2), dtype, 1);
    const Tensor clean = product(ops(), x, weight, {}, dtype);
    fill(x.view().rows(5, 1), std::numeric_limits<float>::quiet_NaN());
    const Tensor spoilt = product(ops(), x, weight, {}, dtype);
    EXPECT_TRUE(same_bits(clean.view().rows(0, 5), spoilt.view().rows(0, 5)));
    EXPECT_TRUE(same_bits(clean.view().rows(6, 7), spoilt.view().rows(6, 7)));
    EXPECT_TRUE(std::isnan(get(spoilt, 5 * 33)));
  }
}

Tensor columns_of(Device& device, ConstTensorView matrix, IndexRange columns) {
  Tensor part(device, matrix.dtype, {matrix.shape[0], columns.size()});
  for (int64_t row = 0; row < matrix.shape[0]; ++row)
    for (int64_t c = 0; c < columns.size(); ++c)
      set(part, row * columns.size() + c, get(matrix, row * matrix.shape[1] + columns.begin + c));
  return part;
}

// The computation of tensor-parallel ranks: each a shard of the columns, then the tree.
Tensor sharded_product(Ops& ops, ConstTensorView x, ConstTensorView raw, int shards, int slices) {
  const int64_t part = x.shape[1] / shards;
  std::vector<Tensor> sums;
  for (int64_t shard = 0; shard < shards; ++shard) {
    const IndexRange columns{shard * part, (shard + 1) * part};
    const Weight weight = packed(ops, columns_of(ops.device(), raw, columns), raw.dtype, slices / shards);
    sums.push_back(product(ops, columns_of(ops.device(), x, columns), weight, {}, DType::fp32));
  }
  for (size_t stride = 1; stride < sums.size(); stride *= 2)
    for (size_t i = 0; i + stride < sums.size(); i += 2 * stride) ops.add(sums[i], sums[i + stride], sums[i]);
  return std::move(sums[0]);
}

TEST_P(Matmul, ShardsAddedByTheTreeHaveTheBitsOfOneWeight) {
  for (const DType dtype : activation_types())
    for (const int64_t k : {8, 160, 352, 1000})
      for (const int64_t m : {1, 13}) {
        const Tensor x = random_tensor(device(), dtype, {m, k}, 1),
                     raw = random_tensor(device(), dtype, {33, k}, 2);
        const Tensor whole = sharded_product(ops(), x, raw, 1, 8);
        for (const int shards : {2, 4, 8}) {
          const Tensor added = sharded_product(ops(), x, raw, shards, 8);
          if (promises_bits())
            EXPECT_TRUE(same_bits(added, whole)) << k << " / " << shards;
          else
            ASSERT_NO_FATAL_FAILURE(expect_close(x, raw, {}, added)) << k << " / " << shards;
        }
      }
}

// The fp32 values of a raw tensor, and the same as stored in another type.
Tensor raw_of_type(Device& device, DType dtype, int64_t rows, int64_t columns) {
  Tensor raw(device, dtype, {rows, columns});
  if (dtype != DType::fp16) {
    fill_random(raw, 7);
    return raw;
  }
  // Every kind of binary16 but infinities and NaN.
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto bits = static_cast<uint16_t>(hashed(static_cast<uint64_t>(i)));
    raw.view().as<Float16>()[i].bits =
        (bits & 0x7c00u) == 0x7c00u ? static_cast<uint16_t>(bits & 0x83ffu) : bits;
  }
  return raw;
}

TEST_P(Matmul, PacksPiecesInAnyOrderAndGivesTheRowsBack) {
  constexpr int64_t rows = 101, columns = 75;
  for (const DType raw_type : {DType::bf16, DType::fp16, DType::fp32})
    for (const DType dtype : activation_types()) {
      const Tensor raw = raw_of_type(device(), raw_type, rows, columns);
      Weight pieces = ops().make_weight({dtype, rows, columns, 1});
      for (const IndexRange range : {IndexRange{33, 70}, {0, 3}, {70, 101}, {3, 33}})
        ops().pack(pieces, range.begin, {raw.view().rows(range.begin, range.size())});
      const Tensor x = random_tensor(device(), dtype, {3, columns}, 1);
      EXPECT_TRUE(same_bits(product(ops(), x, pieces, {}, DType::fp32),
                            product(ops(), x, packed(ops(), raw, dtype, 1), {}, DType::fp32)));
      std::vector<int32_t> every_row(rows);
      for (size_t i = 0; i < every_row.size(); ++i) every_row[i] = static_cast<int32_t>(i);
      Tensor out(device(), dtype, {rows, columns});
      ops().embed(int_tensor(device(), every_row), pieces, {0, rows}, out);
      for (int64_t i = 0; i < rows * columns; ++i) {
        const float value = get(raw, i), stored = rounded(dtype, value);
        ASSERT_EQ(get(out, i), stored) << name_of(raw_type) << " -> " << name_of(dtype) << ", element " << i;
      }
    }
}

TEST_P(Matmul, EmbedGivesPositiveZerosForIdsOfOtherShards) {
  for (const DType dtype : activation_types()) {
    const Tensor raw = random_tensor(device(), dtype, {65, 40}, 1);
    const Weight table = packed(ops(), raw, dtype, 1);
    GuardedTensor out(device(), dtype, {6, 40});
    ops().embed(int_tensor(device(), {99, 100, 131, 164, 165, 0}), table, {100, 165}, out.view());
    const Tensor zeros = zeroed(device(), dtype, {1, 40});
    for (const int64_t elsewhere : {0, 4, 5}) EXPECT_TRUE(same_bits(out.view().rows(elsewhere, 1), zeros));
    EXPECT_TRUE(same_bits(out.view().rows(1, 1), raw.view().rows(0, 1)));
    EXPECT_TRUE(same_bits(out.view().rows(2, 1), raw.view().rows(31, 1)));
    EXPECT_TRUE(same_bits(out.view().rows(3, 1), raw.view().rows(64, 1)));
    EXPECT_TRUE(out.intact());
  }
}

TEST_P(Matmul, AWeightThatWasNeverPackedIsZero) {
  const Tensor x = random_tensor(device(), DType::bf16, {3, 70}, 1);
  const Tensor out = product(ops(), x, ops().make_weight({DType::bf16, 40, 70, 2}), {}, DType::fp32);
  for (const float value : floats_of(out)) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace maniple
