#include <kernels/attention_steps.hpp>
#include <support/cover.hpp>

namespace maniple {
namespace {

using namespace testing;

class Latent : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Every, Latent, ::testing::ValuesIn(all_subjects()), name_of_subject);

int64_t padded(int64_t lanes) { return (lanes + 15) / 16 * 16; }
float angle(int64_t position, int64_t pair) {
  return static_cast<float>(position) * (pair == 0 ? 1.0f : 0.1f / static_cast<float>(pair));
}

// A layer of latent attention: of one sequence, its first token at position 0. Numbers are functions of their place.
struct Layer {
  int64_t heads, nope, compressed, rotary, value;
  DType dtype;

  int64_t lanes() const { return padded(compressed); }
  int64_t rotary_lanes() const { return padded(rotary); }
  HeadLayout layout() const { return {heads, 1, lanes() + rotary_lanes(), lanes()}; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(nope + rotary)); }
  int64_t query_lanes() const { return nope + rotary_lanes(); }

  double of(uint64_t seed, int64_t i, float range) const {
    return static_cast<double>(rounded(dtype, range * uniform(seed, static_cast<uint64_t>(i))));
  }
  // Halves of the rotated lanes stand at the beginnings of halves of their padded ones.
  int64_t rotated_lane(int64_t i) const { return i < rotary / 2 ? i : rotary_lanes() / 2 + i - rotary / 2; }
  double query(int64_t t, int64_t h, int64_t i) const {
    return of(1, (t * heads + h) * (nope + rotary) + i, 2);
  }
  double row(int64_t t, int64_t i) const { return of(2, t * (compressed + rotary) + i, 2); }
  double norm(int64_t i) const {
    return static_cast<double>(1 + 0.5f * uniform(3, static_cast<uint64_t>(i)));
  }
  double key_weight(int64_t h, int64_t c, int64_t i) const {
    return of(4, (h * compressed + c) * nope + i, 1.5f / std::sqrt(static_cast<float>(compressed)));
  }
  double value_weight(int64_t h, int64_t i, int64_t c) const {
    return of(5, (h * value + i) * compressed + c, 1.5f / std::sqrt(static_cast<float>(compressed)));
  }
};

using Numbers = std::vector<double>;

void rotate(Numbers& lanes, int64_t position) {
  const size_t half = lanes.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const double a = static_cast<double>(angle(position, static_cast<int64_t>(i))), low = lanes[i],
                 high = lanes[half + i];
    lanes[i] = low * std::cos(a) - high * std::sin(a);
    lanes[half + i] = high * std::cos(a) + low * std::sin(a);
  }
}

// The form that nobody computes: keys and values of each head, from the latent rows, in double precision. [tokens][heads x value]
std::vector<Numbers> expanded(const Layer& layer, int64_t tokens) {
  std::vector<Numbers> compressed, rotated, results(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    Numbers c, r;
    double squares = 0;
    for (int64_t i = 0; i < layer.compressed; ++i)
      c.push_back(layer.row(t, i)), squares += c.back() * c.back();
    for (int64_t i = 0; i < layer.compressed; ++i)
      c[static_cast<size_t>(i)] *=
          layer.norm(i) / std::sqrt(squares / static_cast<double>(layer.compressed) + 1e-6);
    for (int64_t i = 0; i < layer.rotary; ++i) r.push_back(layer.row(t, layer.compressed + i));
    rotate(r, t);
    compressed.push_back(c), rotated.push_back(r);
  }
  for (int64_t h = 0; h < layer.heads; ++h) {
    std::vector<Numbers> keys, values;
    for (int64_t t = 0; t < tokens; ++t) {
      Numbers key(static_cast<size_t>(layer.nope)), value(static_cast<size_t>(layer.value));
      for (int64_t c = 0; c < layer.compressed; ++c) {
        const double of_row = compressed[static_cast<size_t>(t)][static_cast<size_t>(c)];
        for (int64_t i = 0; i < layer.nope; ++i)
          key[static_cast<size_t>(i)] += layer.key_weight(h, c, i) * of_row;
        for (int64_t i = 0; i < layer.value; ++i)
          value[static_cast<size_t>(i)] += layer.value_weight(h, i, c) * of_row;
      }
      key.insert(key.end(), rotated[static_cast<size_t>(t)].begin(), rotated[static_cast<size_t>(t)].end());
      keys.push_back(key), values.push_back(value);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      Numbers query, rope, out(static_cast<size_t>(layer.value));
      for (int64_t i = 0; i < layer.nope; ++i) query.push_back(layer.query(t, h, i));
      for (int64_t i = 0; i < layer.rotary; ++i) rope.push_back(layer.query(t, h, layer.nope + i));
      rotate(rope, t);
      query.insert(query.end(), rope.begin(), rope.end());
      double total = 0;
      for (size_t p = 0; p <= static_cast<size_t>(t); ++p) {
        const double weight = std::exp(static_cast<double>(layer.scale()) *
                                       std::inner_product(query.begin(), query.end(), keys[p].begin(), 0.0));
        total += weight;
        for (size_t i = 0; i < out.size(); ++i) out[i] += weight * values[p][i];
      }
      for (const double sum : out) results[static_cast<size_t>(t)].push_back(sum / total);
    }
  }
  return results;
}

std::vector<Weight> by_head(Ops& ops, const Layer& layer, int64_t rows, int64_t columns, auto number) {
  std::vector<Weight> weights;
  for (int64_t h = 0; h < layer.heads; ++h) {
    Tensor values(ops.device(), layer.dtype, {rows, columns});
    for (int64_t i = 0; i < rows * columns; ++i)
      set(values, i, static_cast<float>(number(h, i / columns, i % columns)));
    WeightShape shape;
    shape.dtype = layer.dtype, shape.rows = rows, shape.columns = columns;
    weights.push_back(ops.make_weight(shape));
    ops.pack(weights.back(), 0, {values.view()});
  }
  return weights;
}
std::vector<const Weight*> addresses(const std::vector<Weight>& weights) {
  std::vector<const Weight*> all;
  for (const Weight& weight : weights) all.push_back(&weight);
  return all;
}

// What a model's layer does, chunk after chunk: [tokens, heads x value].
std::vector<float> absorbed(Ops& ops, const Layer& layer, int64_t block_size,
                            const std::vector<int32_t>& chunks) {
  Device& device = ops.device();
  const int64_t tokens = std::accumulate(chunks.begin(), chunks.end(), int64_t{0}), lanes = layer.lanes(),
                rope = layer.rotary_lanes(), width = layer.query_lanes();
  const HeadLayout heads = layer.layout();
  Tensor queries(device, layer.dtype, {tokens, layer.heads * width}),
      rows(device, layer.dtype, {tokens, heads.key_dim}), norm(device, DType::fp32, {lanes}),
      cos_sin(device, DType::fp32, {tokens, rope});
  for (const TensorView view : {queries.view(), rows.view(), norm.view(), cos_sin.view()})
    testing::fill(view, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < layer.heads; ++h)
      for (int64_t i = 0; i < layer.nope + layer.rotary; ++i)
        set(queries,
            (t * layer.heads + h) * width +
                (i < layer.nope ? i : layer.nope + layer.rotated_lane(i - layer.nope)),
            static_cast<float>(layer.query(t, h, i)));
    for (int64_t i = 0; i < layer.compressed + layer.rotary; ++i)
      set(rows,
          t * heads.key_dim + (i < layer.compressed ? i : lanes + layer.rotated_lane(i - layer.compressed)),
          static_cast<float>(layer.row(t, i)));
    for (int64_t i = 0; i < rope / 2; ++i) {
      const double a = i < layer.rotary / 2 ? static_cast<double>(angle(t, i)) : 0.0;
      set(cos_sin, t * rope + i, static_cast<float>(std::cos(a)));
      set(cos_sin, t * rope + rope / 2 + i, static_cast<float>(std::sin(a)));
    }
  }
  for (int64_t i = 0; i < layer.compressed; ++i) set(norm, i, static_cast<float>(layer.norm(i)));
  const auto key_weights = by_head(ops, layer, lanes, layer.nope, [&](int64_t h, int64_t c, int64_t i) {
    return c < layer.compressed ? layer.key_weight(h, c, i) : 0.0;
  });
  const auto value_weights = by_head(ops, layer, layer.value, lanes, [&](int64_t h, int64_t i, int64_t c) {
    return c < layer.compressed ? layer.value_weight(h, i, c) : 0.0;
  });

  const Scene scene{heads, block_size, layer.dtype};
  Step step(ops, scene, {{0, 0, static_cast<int>(tokens)}});  // its cache holds NaN
  std::vector<float> results;
  int32_t past = 0;
  for (const int32_t chunk : chunks) {
    const Tensor starts = int_tensor(device, {0, chunk}), pasts = int_tensor(device, {past});
    AttentionBatch batch = step.batch();
    batch.query_starts = starts;
    batch.past_lengths = pasts;
    batch.positions = batch.positions.rows(past, chunk);
    batch.slots = batch.slots.rows(past, chunk);
    Tensor joined(device, layer.dtype, {chunk, heads.query_width()}),
        attended(device, layer.dtype, {chunk, heads.out_width()}),
        out(device, layer.dtype, {chunk, layer.heads * layer.value});
    const ConstTensorView q = queries.view().rows(past, chunk);
    ops.matmul_heads(q, addresses(key_weights), joined);
    ops.latent_queries(q, heads, cos_sin, batch, joined);
    ops.latent_store(rows.view().rows(past, chunk), {norm, 1e-6f, layer.compressed}, cos_sin, batch,
                     step.pages());
    ops.attention({joined, heads, batch, step.pages(), attended, layer.scale()});
    ops.matmul_heads(attended, addresses(value_weights), out);
    const std::vector<float> found = floats_of(out);
    results.insert(results.end(), found.begin(), found.end());
    past += chunk;
  }
  return results;
}

// The root of the mean square of the differences, against that of the exact numbers.
double relative_error(const std::vector<float>& found, const std::vector<Numbers>& exact) {
  double difference = 0, magnitude = 0;
  size_t i = 0;
  for (const Numbers& row : exact)
    for (const double number : row) {
      const double off = static_cast<double>(found[i++]) - number;
      difference += off * off, magnitude += number * number;
    }
  return std::sqrt(difference / magnitude);
}

TEST_P(Latent, AbsorbedIsTheExpandedFormInDoublePrecision) {
  for (const auto& [dtype, sizes] :
       each_value(activation_types(),
                  std::vector<std::array<int64_t, 5>>{
                      {1, 24, 56, 8, 24}, {4, 16, 48, 16, 40}, {5, 33, 96, 24, 8}, {16, 12, 64, 64, 16}})) {
    const auto& [heads, nope, compressed, rotary, value] = sizes;
    SCOPED_TRACE(fmt::format("{}: {} heads of {} + {}, {} latent lanes", name_of(dtype), heads, nope, rotary,
                             compressed));
    const Layer layer{heads, nope, compressed, rotary, value, dtype};
    const std::vector<Numbers> exact = expanded(layer, 12);
    const double bound = dtype == DType::bf16 ? 0.01 : dtype == DType::fp16 ? 0.0015 : 1e-6;
    for (const auto& [block_size, chunks] :
         std::vector<std::pair<int64_t, std::vector<int32_t>>>{{16, {12}}, {256, {1, 7, 1, 3}}})
      EXPECT_LE(relative_error(absorbed(ops(), layer, block_size, chunks), exact), bound);
  }
}

TEST_P(Latent, ChunksAndBlocksHaveTheBitsOfTheWholePrompt) {
  if (!promises_bits()) return;
  for (const DType dtype : activation_types()) {
    const Layer layer{5, 24, 56, 8, 24, dtype};
    const std::vector<float> whole = absorbed(ops(), layer, 16, {300});
    const Backend other = with_threads(5);
    for (const std::vector<int32_t>& chunks :
         std::vector<std::vector<int32_t>>{{1, 15, 1, 239, 1, 43}, {255, 2, 43}, {256, 44}})
      EXPECT_EQ(absorbed(*other.ops, layer, 256, chunks), whole);
  }
}

// A position of another owner, or padding.
TEST_P(Latent, OfATokenWithoutASlotStoresNothing) {
  const HeadLayout heads{4, 1, 48, 32};
  const Scene scene{heads, 16, DType::fp32};
  Step step(ops(), scene, {{0, 3, 2}});
  AttentionBatch batch = step.batch();
  const Tensor none = int_tensor(device(), {-1, -1});
  batch.slots = none;
  const Tensor rows = random_tensor(device(), DType::fp32, {2, 48}, 1),
               norm = random_tensor(device(), DType::fp32, {32}, 2),
               angles = random_tensor(device(), DType::fp32, {8, 16}, 3);
  ops().latent_store(rows, {norm, 1e-6f}, angles, batch, step.pages());
  Tensor stored(device(), DType::fp32, {step.pages().slots(), 1, 48});
  read_kv(ops(), step.pages(), stored, {});
  EXPECT_TRUE(std::ranges::all_of(floats_of(stored), [](float v) { return std::isnan(v); }));
}

TEST(KvLayout, KeepsLatentRowsInTheTypeOfTheActivations) {
  const KvLayout codes{1, 576, 16, DType::fp8, 512, true}, once{1, 576, 16, DType::bf16, 512, true};
  EXPECT_FALSE(codes.keeps(DType::bf16));
  EXPECT_TRUE(once.keeps(DType::bf16));
  EXPECT_EQ(once.block_bytes(), 576 * 16 * 2);
  EXPECT_FALSE(once.holds({8, 1, 576}, DType::bf16));
}

}  // namespace
}  // namespace maniple
