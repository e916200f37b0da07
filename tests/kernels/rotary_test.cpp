#include <kernels/attention_steps.hpp>

namespace maniple {
namespace {

using namespace testing;

class Rotary : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Every, Rotary, ::testing::ValuesIn(all_subjects()), name_of_subject);

struct RotaryInputs {
  Tensor qkv, cos_sin, query_norm, key_norm;
  HeadNorms norms() const { return {query_norm, key_norm, query_norm ? 1e-6f : 0.0f}; }
};

// rotary_width 0: that of the heads.
RotaryInputs rotary_inputs(Device& device, const Scene& scene, int64_t tokens, bool normed,
                           int64_t rotary_width = 0) {
  const int64_t dim = scene.heads.key_dim, positions = 700;
  const int64_t width = rotary_width > 0 ? rotary_width : dim;
  RotaryInputs inputs{random_tensor(device, scene.dtype, {tokens, scene.heads.qkv_width()}, 1, 2),
                      Tensor(device, DType::fp32, {positions, width}),
                      {},
                      {}};
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < width / 2; ++i) {
      const double angle = static_cast<double>(p) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      set(inputs.cos_sin, p * width + i, static_cast<float>(std::cos(angle)));
      set(inputs.cos_sin, p * width + width / 2 + i, static_cast<float>(std::sin(angle)));
    }
  if (normed) {
    inputs.query_norm = random_tensor(device, DType::fp32, {dim}, 2);
    inputs.key_norm = random_tensor(device, DType::fp32, {dim}, 3);
  }
  return inputs;
}

std::vector<double> exact_head(ConstTensorView qkv, int64_t begin, int64_t dim, ConstTensorView norm,
                               const float* cos_sin, int64_t rotary_width) {
  std::vector<double> head, out;
  for (int64_t i = 0; i < dim; ++i) head.push_back(get(qkv, begin + i));
  if (!norm.empty()) {
    const double squares = std::inner_product(head.begin(), head.end(), head.begin(), 0.0);
    for (int64_t i = 0; i < dim; ++i)
      head[static_cast<size_t>(i)] *= get(norm, i) / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
  }
  for (int64_t i = 0; i < dim; ++i) {
    const int64_t half = dim / 2, pair = i % half;
    if (pair >= rotary_width / 2) {
      out.push_back(head[static_cast<size_t>(i)]);
      continue;
    }
    const double partner = head[static_cast<size_t>(i < half ? i + half : i - half)];
    out.push_back(head[static_cast<size_t>(i)] * cos_sin[pair] +
                  (i < half ? -partner : partner) * cos_sin[rotary_width / 2 + pair]);
  }
  return out;
}

TEST_P(Rotary, RotatesQueriesAndKeysAndStoresExactlyTheTokensOfTheBatch) {
  for (const DType dtype : activation_types())
    for (const auto& [head_dim, rotary_width] :
         {std::pair(16, 16), {32, 32}, {64, 16}, {96, 96}, {128, 64}, {256, 256}, {576, 64}, {576, 576}})
      for (const bool normed : {false, true}) {
        const int64_t dim = head_dim;
        SCOPED_TRACE(fmt::format("{} head_dim {}, {} rotated{}", name_of(dtype), dim, rotary_width,
                                 normed ? ", normed" : ""));
        const Scene scene{{6, 2, dim}, 32, dtype};
        const std::vector<Part> parts{{0, 0, 5}, {3, -1, 1}, {1, 300, 1}, {2, 30, 7}, {4, -1, 1}};
        Step step(ops(), scene, parts);
        const RotaryInputs inputs = rotary_inputs(device(), scene, step.tokens(), normed, rotary_width);
        GuardedTensor queries(device(), dtype, {step.tokens(), scene.heads.query_width()});
        const PoisonedRows qkv(device(), inputs.qkv);
        ops().rotary_store(qkv.view(), scene.heads, inputs.norms(), inputs.cos_sin, step.batch(),
                           queries.view(), step.pages());
        EXPECT_TRUE(queries.intact());
        Tensor keys(device(), dtype, {step.pages().slots(), scene.heads.kv_width()});
        Tensor values(device(), dtype, keys.shape());
        read_kv(ops(), step.pages(), keys, values);
        const int64_t query_width = scene.heads.query_width(), kv_width = scene.heads.kv_width(),
                      width = scene.heads.qkv_width();
        const auto expect_near = [&](double actual, double exact) {
          ASSERT_NEAR(actual, exact,
                      1.01 * rounding(dtype) * std::abs(exact) + 4e-6 * std::sqrt(static_cast<double>(dim)));
        };
        const int64_t angles_a_token = rotary_width;
        step.for_tokens([&](size_t p, int64_t token, int position) {
          if (position < 0) return;
          const float* const angles = inputs.cos_sin.view().as<float>() + position * angles_a_token;
          for (int64_t h = 0; h < 6; ++h) {
            const auto exact = exact_head(inputs.qkv, token * width + h * dim, dim, inputs.query_norm, angles,
                                          angles_a_token);
            for (int64_t i = 0; i < dim; ++i)
              expect_near(get(queries.view(), token * query_width + h * dim + i),
                          exact[static_cast<size_t>(i)]);
          }
          for (int64_t h = 0; h < 2; ++h) {
            const auto exact = exact_head(inputs.qkv, token * width + query_width + h * dim, dim,
                                          inputs.key_norm, angles, angles_a_token);
            for (int64_t i = 0; i < dim; ++i) {
              expect_near(get(keys, step.cache_index(p, position, h * dim + i)),
                          exact[static_cast<size_t>(i)]);
              ASSERT_EQ(get(values, step.cache_index(p, position, h * dim + i)),
                        get(inputs.qkv, token * width + query_width + kv_width + h * dim + i));
            }
          }
        });
        for (const TensorView cache : {keys.view(), values.view()}) {
          const std::vector<float> stored = floats_of(cache);
          EXPECT_EQ(std::count_if(stored.begin(), stored.end(), [](float v) { return !std::isnan(v); }),
                    (step.tokens() - 2) * kv_width);
        }
      }
}

// A token at a position of another owner has a query and stores nothing.
TEST_P(Rotary, MakesTheQueryOfATokenWithoutASlot) {
  const Scene scene{{6, 2, 32}, 16, DType::fp32};
  Step step(ops(), scene, {{0, 3, 4}});
  const RotaryInputs inputs = rotary_inputs(device(), scene, step.tokens(), true);
  std::vector<std::vector<float>> results;
  for (const bool stored : {true, false}) {
    AttentionBatch batch = step.batch();
    const Tensor none = int_tensor(device(), std::vector<int32_t>(4, -1));
    if (!stored) batch.slots = none;
    Step fresh(ops(), scene, {{0, 3, 4}});  // its cache holds NaN
    Tensor queries(device(), scene.dtype, {4, scene.heads.query_width()});
    ops().rotary_store(inputs.qkv, scene.heads, inputs.norms(), inputs.cos_sin, batch, queries,
                       fresh.pages());
    results.push_back(floats_of(queries));
    Tensor keys(device(), scene.dtype, {fresh.pages().slots(), scene.heads.kv_width()}),
        values(device(), scene.dtype, keys.shape());
    read_kv(ops(), fresh.pages(), keys, values);
    const std::vector<float> all = floats_of(keys);
    EXPECT_EQ(std::ranges::any_of(all, [](float v) { return !std::isnan(v); }), stored);
  }
  EXPECT_EQ(results[0], results[1]);
}

// Slots that are not stored yet hold NaN, also the neighbour in a word of two positions. A later token never reaches an
// earlier one, not even as NaN.
TEST_P(Rotary, ChunksHaveTheBitsOfTheWholePrompt) {
  constexpr int64_t tokens = 45;
  const Backend backend = with_threads(8);
  Ops& many = *backend.ops;
  for (const DType dtype : activation_types())
    for (const int64_t last : {tokens - 1, tokens - 2}) {
      const Scene scene = scene_of(32, 2, 16, dtype);
      RotaryInputs inputs = rotary_inputs(many.device(), scene, tokens, false);
      const auto attended = [&](const std::vector<int32_t>& chunks) {
        Step step(many, scene, {{0, 0, tokens}});
        Tensor out(many.device(), dtype, {tokens, scene.heads.query_width()}),
            queries(many.device(), dtype, out.shape());
        int32_t past = 0;
        for (const int32_t chunk : chunks) {
          const Tensor starts = int_tensor(many.device(), {0, chunk}),
                       pasts = int_tensor(many.device(), {past});
          AttentionBatch batch = step.batch();
          batch.query_starts = starts;
          batch.past_lengths = pasts;
          batch.positions = batch.positions.rows(past, chunk);
          batch.slots = batch.slots.rows(past, chunk);
          many.rotary_store(inputs.qkv.view().rows(past, chunk), scene.heads, {}, inputs.cos_sin, batch,
                            queries.view().rows(past, chunk), step.pages());
          many.attention({queries.view().rows(past, chunk), scene.heads, batch, step.pages(),
                          out.view().rows(past, chunk), scene.scale()});
          past += chunk;
        }
        return floats_of(out.view().rows(0, last));
      };
      const std::vector<float> whole = attended({tokens});
      EXPECT_TRUE(std::ranges::none_of(whole, [](float v) { return std::isnan(v); }));
      const TensorView poisoned = inputs.qkv.view().rows(last, tokens - last);
      for (int64_t i = 0; promises_bits() && i < poisoned.shape.elements(); ++i) set(poisoned, i, nan);
      for (const std::vector<int32_t>& chunks : std::vector<std::vector<int32_t>>{
               {tokens}, {1, 1, 1, 40, 2}, {2, 13, 17, 13}, {16, 15, 1, 13}, {5, 32, 7, 1}}) {
        const std::vector<float> found = attended(chunks);
        if (promises_bits())
          EXPECT_EQ(found, whole);
        else
          for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(found[i], whole[i], 2 * off_bound);
      }
    }
}

TEST_P(Rotary, OfATokenDoesNotDependOnBatchOrThreads) {
  for (const DType dtype : activation_types()) {
    const Scene scene = scene_of(96, 3, 16, dtype);
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 3}) {
      const Backend backend = with_threads(threads);
      Step step(*backend.ops, scene, {{0, 0, 64}});
      const RotaryInputs inputs = rotary_inputs(backend.ops->device(), scene, 64, true);
      Tensor queries(backend.ops->device(), dtype, {64, scene.heads.query_width()});
      backend.ops->rotary_store(inputs.qkv, scene.heads, inputs.norms(), inputs.cos_sin, step.batch(),
                                queries, step.pages());
      results.push_back(floats_of(queries));

      Step last(*backend.ops, scene, {{0, 63, 1}});
      Tensor query_alone(backend.ops->device(), dtype, {1, scene.heads.query_width()});
      backend.ops->rotary_store(inputs.qkv.view().rows(63, 1), scene.heads, inputs.norms(), inputs.cos_sin,
                                last.batch(), query_alone, last.pages());
      EXPECT_TRUE(same_bits(query_alone, queries.view().rows(63, 1)));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

}  // namespace
}  // namespace maniple
