#include <kernels/attention_steps.hpp>
#include <support/cover.hpp>

#include <map>

namespace maniple {
namespace {

using namespace testing;

// Softmax attention of one query head in double precision; `magnitude` gets the sum of p * |v| of each
// element.
std::vector<double> exact_attention(const Scene& scene, int sequence, int position, int64_t head,
                                    std::vector<double>& magnitude) {
  const int64_t dim = scene.heads.key_dim, kv_head = head / (scene.heads.query_heads / scene.heads.kv_heads);
  const Kind kept = scene.latent() ? key : value;
  std::vector<double> weights, out(static_cast<size_t>(scene.heads.value_dim));
  magnitude.assign(out.size(), 0);
  for (int p = first_seen(scene, position); p <= position; ++p) {
    double score = 0;
    for (int64_t i = 0; i < dim; ++i)
      score += static_cast<double>(element(scene, query, sequence, position, head * dim + i)) *
               element(scene, key, sequence, p, kv_head * dim + i);
    weights.push_back(std::exp(score * static_cast<double>(scene.scale())));
  }
  const double total = std::accumulate(weights.begin(), weights.end(),
                                       scene.sinks ? std::exp(double{sink_of(scene, head)}) : 0.0);
  for (int p = position; p >= first_seen(scene, position); --p, weights.pop_back())
    for (size_t i = 0; i < out.size(); ++i) {
      const double term =
          weights.back() / total * element(scene, kept, sequence, p, kv_head * dim + static_cast<int64_t>(i));
      out[i] += term;
      magnitude[i] += std::abs(term);
    }
  return out;
}

// Scores have a few fp32 rounding errors; results, and perhaps weights, are rounded.
void expect_within(double roundings, const Scene& scene, const std::vector<Part>& parts, const Step& step,
                   ConstTensorView out) {
  const double tolerance = roundings * rounding(scene.dtype) + 1e-5;
  const int64_t dim = scene.heads.value_dim;
  step.for_tokens([&](size_t p, int64_t token, int position) {
    for (int64_t head = 0; head < scene.heads.query_heads; ++head) {
      std::vector<double> magnitude;
      const std::vector<double> exact = exact_attention(scene, parts[p].sequence, position, head, magnitude);
      for (int64_t i = 0; i < dim; ++i)
        ASSERT_NEAR(get(out, (token * scene.heads.query_heads + head) * dim + i),
                    exact[static_cast<size_t>(i)],
                    tolerance * magnitude[static_cast<size_t>(i)] + rounding_near_zero(scene.dtype))
            << "sequence " << parts[p].sequence << ", position " << position << ", head " << head
            << ", element " << i;
    }
  });
}

class Attention : public Conformance {
 protected:
  // Tensor cores of GPUs take the weights in the cache's type, and so do dot products of bf16 pairs.
  static void expect_exact(const Scene& scene, const std::vector<Part>& parts, const Step& step,
                           ConstTensorView out) {
    const bool pairs = (GetParam().path == CpuPath::avx512_bf16 || GetParam().path == CpuPath::amx) &&
                       scene.dtype == DType::bf16;
    expect_within(promises_bits() && !pairs ? 1.5 : 2, scene, parts, step, out);
  }
  // Rows by (sequence, position).
  std::map<std::pair<int, int>, std::vector<float>> rows(Ops& other, const Scene& scene,
                                                         const std::vector<Part>& parts) {
    Step step(other, scene, parts);
    const Tensor out = step.attend(other);
    std::map<std::pair<int, int>, std::vector<float>> found;
    step.for_tokens([&](size_t p, int64_t token, int position) {
      found[{parts[p].sequence, position}] = floats_of(out.view().rows(token, 1));
    });
    return found;
  }
  // NaN would compare unequal, so equality also shows that
  // no unwritten slot was read. Values lie within [-1, 1].
  void expect_same(const std::map<std::pair<int, int>, std::vector<float>>& some,
                   const std::map<std::pair<int, int>, std::vector<float>>& all) {
    for (const auto& [place, row] : some) {
      SCOPED_TRACE(fmt::format("sequence {}, position {}", place.first, place.second));
      if (promises_bits())
        EXPECT_EQ(row, all.at(place));
      else
        for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], all.at(place)[i], off_bound);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Every, Attention, ::testing::ValuesIn(all_subjects()), name_of_subject);

const std::vector<Part> decode_and_chunks{{0, 0, 1},   {1, 1, 1},   {2, 14, 1},   {3, 15, 3},
                                          {4, 0, 20},  {5, 254, 4}, {6, 299, 1},  {7, 511, 2},
                                          {8, 599, 1}, {9, 600, 1}, {10, 100, 33}};

TEST_P(Attention, AgreesWithDoublePrecision) {
  for (const auto& [dtype, dim, group] :
       each_pair(activation_types(), std::vector<int64_t>{16, 32, 64, 96, 128, 256},
                 std::vector<int64_t>{1, 2, 3, 8})) {
    const int64_t block_size = group == 1 ? 16 : group == 2 ? 32 : 256;
    SCOPED_TRACE(
        fmt::format("{} head_dim {} group {} block_size {}", name_of(dtype), dim, group, block_size));
    const Scene scene = scene_of(dim, group, block_size, dtype);
    const std::vector<Part> parts =
        group == 3 ? decode_and_chunks : std::vector<Part>{{0, 0, 17}, {1, 260, 2}, {2, 64, 1}};
    Step step(ops(), scene, parts);
    const Tensor out = step.attend(ops());
    ASSERT_NO_FATAL_FAILURE(expect_exact(scene, parts, step, out));
  }
}

TEST_P(Attention, OfMoreQueryHeadsThanATileHasRowsAgreesToo) {
  for (const DType dtype : activation_types())
    for (const int64_t group : {49, 64, 71}) {
      SCOPED_TRACE(fmt::format("{} group {}", name_of(dtype), group));
      const Scene scene{{2 * group, 2, 16}, 32, dtype};
      const std::vector<Part> parts{{0, 0, 5}, {1, 260, 2}, {2, 64, 1}};
      Step step(ops(), scene, parts);
      const Tensor out = step.attend(ops());
      ASSERT_NO_FATAL_FAILURE(expect_exact(scene, parts, step, out));
    }
}

TEST_P(Attention, OfWideHeadsAgreesToo) {
  for (const auto& [dtype, dim] : each_value(activation_types(), std::vector<int64_t>{320, 576})) {
    SCOPED_TRACE(fmt::format("{} head_dim {}", name_of(dtype), dim));
    const Scene scene{{3, 1, dim}, 32, dtype};
    const std::vector<Part> parts{{0, 0, 5}, {1, 260, 2}, {2, 64, 1}};
    Step step(ops(), scene, parts);
    const Tensor out = step.attend(ops());
    ASSERT_NO_FATAL_FAILURE(expect_exact(scene, parts, step, out));
  }
}

TEST_P(Attention, OfLatentRowsAgreesToo) {
  struct Sizes {
    int64_t heads, compressed, rotary, block_size;
  };
  for (const auto& [dtype, sizes] : each_value(activation_types(), std::vector<Sizes>{{1, 48, 16, 16},
                                                                                      {4, 64, 16, 256},
                                                                                      {5, 128, 32, 32},
                                                                                      {16, 256, 48, 16},
                                                                                      {4, 512, 64, 64},
                                                                                      {50, 32, 32, 16}})) {
    const auto& [heads, compressed, rotary, block_size] = sizes;
    SCOPED_TRACE(fmt::format("{}, {} heads of {} + {}", name_of(dtype), heads, compressed, rotary));
    const Scene scene = latent_scene(heads, compressed, rotary, block_size, dtype);
    const std::vector<Part> parts =
        heads == 5 ? decode_and_chunks : std::vector<Part>{{0, 0, 17}, {1, 255, 2}, {2, 64, 1}};
    Step step(ops(), scene, parts);
    const Tensor out = step.attend(ops());
    ASSERT_NO_FATAL_FAILURE(expect_exact(scene, parts, step, out));
  }
}

// More than the first workspace of a GPU holds.
TEST_P(Attention, OfManySequencesIsPreparedFor) {
  const Scene scene{{128, 1, 256}, 16, DType::bf16};
  std::vector<Part> parts;
  for (int sequence = 0; sequence < 140; ++sequence) parts.push_back({sequence, sequence % 3, 1});
  Step(ops(), scene, parts).prepare(ops());
  const auto together = rows(ops(), scene, parts);
  for (const size_t p : {0, 71, 139}) expect_same(rows(ops(), scene, {parts[p]}), together);
}

TEST_P(Attention, SurvivesScoresThatOverflowAnExponential) {
  for (const DType dtype : activation_types()) {
    Scene scene = scene_of(64, 2, 32, dtype);
    scene.query_scale = 400;
    Step step(ops(), scene, {{0, 0, 40}, {1, 520, 1}});
    const Tensor out = step.attend(ops());
    for (const float result : floats_of(out)) ASSERT_LE(std::abs(result), 1.01f);
  }
}

TEST_P(Attention, ChunksAndDecodeHaveTheBitsOfTheWholePrompt) {
  for (const auto& [dtype, group] :
       each_value(activation_types(),
                  promises_bits() ? std::vector<int64_t>{2, 3, 5} : std::vector<int64_t>{2, 3})) {
    const Scene scene = group == 5 ? latent_scene(5, 32, 16, 32, dtype) : scene_of(64, group, 32, dtype);
    const auto whole = rows(ops(), scene, {{0, 0, 600}});
    for (const Part& part :
         {Part{0, 0, 1}, {0, 1, 37}, {0, 38, 218}, {0, 250, 13}, {0, 256, 256}, {0, 512, 88}})
      expect_same(rows(ops(), scene, {part}), whole);
    for (const int position : {0, 1, 15, 16, 31, 32, 255, 256, 257, 511, 512, 599})
      expect_same(rows(ops(), scene, {{0, position, 1}}), whole);
  }
}

TEST_P(Attention, DoesNotDependOnTheCompanyInTheBatch) {
  for (const DType dtype : activation_types()) {
    const Scene scene = scene_of(32, 2, 16, dtype);
    const auto together = rows(ops(), scene, decode_and_chunks);
    for (const Part& part : decode_and_chunks) expect_same(rows(ops(), scene, {part}), together);
  }
}

TEST_P(Attention, PaddingReadsNothingAndChangesNoOtherRow) {
  for (const auto& [dtype, latent] :
       each_pair(std::vector{DType::bf16, DType::fp32}, std::vector{false, true})) {
    const Scene scene = latent ? latent_scene(4, 32, 16, 16, dtype) : scene_of(32, 2, 16, dtype);
    std::vector<Part> padded;
    for (const Part& part : decode_and_chunks) padded.insert(padded.end(), {{20, -1, 1}, part, {21, -3, 3}});
    auto found = rows(ops(), scene, padded);
    std::erase_if(found, [](const auto& row) { return row.first.second < 0; });
    expect_same(found, rows(ops(), scene, decode_and_chunks));
    rows(ops(), scene, {{20, -1, 1}, {21, -3, 3}});
  }
}

TEST_P(Attention, DoesNotDependOnBlockSizeOrPlace) {
  for (const DType dtype : activation_types()) {
    const auto small = rows(ops(), scene_of(64, 2, 16, dtype), decode_and_chunks);
    for (const int64_t block_size : {32, 64, 128, 256}) {
      Scene scene = scene_of(64, 2, block_size, dtype);
      scene.reversed_blocks = block_size == 32;
      expect_same(rows(ops(), scene, decode_and_chunks), small);
    }
    if (promises_bits())
      expect_same(rows(ops(), latent_scene(4, 48, 16, 256, dtype), decode_and_chunks),
                  rows(ops(), latent_scene(4, 48, 16, 16, dtype), decode_and_chunks));
  }
}

TEST_P(Attention, DoesNotDependOnTheNumberOfThreads) {
  for (const auto& [dtype, latent] : each_value(activation_types(), std::vector{false, true})) {
    const Scene scene = latent ? latent_scene(3, 48, 16, 16, dtype) : scene_of(64, 3, 16, dtype);
    const auto alone = rows(*with_threads(1).ops, scene, decode_and_chunks);
    for (const int threads : {3, 5}) {
      const Backend backend = with_threads(threads);
      expect_same(rows(*backend.ops, scene, decode_and_chunks), alone);
    }
  }
}

// Lengths of w - 1, w, w + 1 and 3 w among them.
std::vector<Part> parts_around(int window) {
  std::vector<Part> parts = decode_and_chunks;
  for (const int length : {window - 1, window, window + 1, 3 * window})
    if (length > 0) parts.push_back({11 + static_cast<int>(parts.size()), length - 1, 1});
  parts.push_back({30, 3 * window, 5});
  parts.push_back({31, 2 * window + 7, 40});
  return parts;
}

TEST_P(Attention, OverAWindowAgreesWithDoublePrecision) {
  struct Sizes {
    int64_t dim, group, block_size;
  };
  for (const auto& [dtype, window, sizes] :
       each_value(activation_types(), std::vector{1, 3, 16, 37, 48, 128, 257, 300},
                  std::vector<Sizes>{{16, 8, 16}, {64, 3, 32}, {96, 5, 256}, {128, 1, 64}})) {
    SCOPED_TRACE(
        fmt::format("{} head_dim {} group {} window {}", name_of(dtype), sizes.dim, sizes.group, window));
    Scene scene = scene_of(sizes.dim, sizes.group, sizes.block_size, dtype);
    scene.window = window;
    scene.sinks = window % 2 != 0;
    const std::vector<Part> parts = parts_around(window);
    Step step(ops(), scene, parts);
    const Tensor out = step.attend(ops());
    ASSERT_NO_FATAL_FAILURE(expect_exact(scene, parts, step, out));
  }
}

TEST_P(Attention, OverAWindowChunksCutAnywhereHaveTheBitsOfTheWholePrompt) {
  for (const auto& [dtype, group, window] :
       each_value(activation_types(), std::vector<int64_t>{2, 3, 16}, std::vector{9, 16, 23})) {
    SCOPED_TRACE(fmt::format("{} group {} window {}", name_of(dtype), group, window));
    Scene scene = scene_of(32, group, 16, dtype);
    scene.window = window;
    const int length = 3 * window + 2;
    const auto whole = rows(ops(), scene, {{0, 0, length}});
    for (int cut = 1; cut < length; cut += promises_bits() ? 1 : 13)
      expect_same(rows(ops(), scene, {{0, 0, cut}, {0, cut, length - cut}}), whole);
  }
}

// Windows of part of a split, of more than one, and of more splits than there are classes.
TEST_P(Attention, OverAWindowDoesNotDependOnTheRestOfTheBatchBlocksOrThreads) {
  for (const auto& [dtype, window] :
       each_value(activation_types(), promises_bits() ? std::vector{40, 300, 2100} : std::vector{40})) {
    SCOPED_TRACE(fmt::format("{} window {}", name_of(dtype), window));
    Scene scene = scene_of(32, 2, 16, dtype);
    scene.window = window;
    scene.sinks = true;
    const std::vector<Part> parts{{0, 0, 3},    {1, 250, 50},  {2, 511, 1},    {3, 700, 20},
                                  {4, 1023, 2}, {5, 2304, 30}, {6, window, 9}, {7, window + 2590, 3}};
    const auto together = rows(ops(), scene, parts);
    for (const Part& part : parts) {
      const Part last{part.sequence, part.past + part.query - 1, 1};
      expect_same(rows(ops(), scene, {part}), together);
      expect_same(rows(*with_threads(5).ops, scene, {last}), together);
    }
    scene.block_size = 256;
    expect_same(rows(*with_threads(1).ops, scene, parts), together);
  }
}

TEST_P(Attention, AddsASinkOnceToAnyNumberOfSplits) {
  for (const DType dtype : activation_types()) {
    Scene scene{{4, 1, 16}, 64, dtype};
    scene.sinks = true;
    std::vector<Part> parts;
    for (const int splits : {1, 2, 3, 7, 8, 9, 17, 40}) parts.push_back({splits, 256 * splits - 100, 1});
    Step step(ops(), scene, parts);
    const Tensor out = step.attend(ops());
    ASSERT_NO_FATAL_FAILURE(expect_exact(scene, parts, step, out));
  }
}

// Owners see the pages of their own splits only; none of them may be empty for all rows.
TEST_P(Attention, OfOwnersOfAContextMergesToTheBitsOfOneOwner) {
  const std::vector<Part> many{{0, 0, 1},    {1, 254, 3},  {2, 511, 1},  {7, -1, 1},
                               {3, 512, 20}, {4, 2046, 4}, {5, 4096, 1}, {6, 2400, 70}};
  const std::vector<Part> fewer_tokens{{0, 0, 1},    {1, 254, 3},  {2, 511, 1},
                                       {3, 512, 20}, {5, 2304, 1}, {6, 900, 9}};
  const std::vector<Part> few{{0, 0, 1}, {1, 254, 3}, {4, 2046, 4}, {7, -1, 1}};
  struct Shared {
    int64_t owners, heads, dim = 32, value_dim = dim;
    int window = 0;
    bool sinks = false;
  };
  for (const auto& [dtype, shape] :
       each_value(std::vector{DType::bf16, DType::fp32}, std::vector<Shared>{{2, 2},
                                                                             {4, 4},
                                                                             {8, 8},
                                                                             {3, 6},
                                                                             {6, 6},
                                                                             {16, 16},
                                                                             {2, 98},
                                                                             {8, 56},
                                                                             {2, 10, 32, 16},
                                                                             {4, 8, 48, 32},
                                                                             {2, 6, 32, 32, 40, true},
                                                                             {8, 16, 32, 32, 700, true},
                                                                             {4, 8, 32, 32, 3000},
                                                                             {8, 8, 32, 32, 0, true},
                                                                             {3, 6, 32, 32, 300, true}})) {
    const auto& [owners, heads, dim, value_dim, window, sinks] = shape;
    const int64_t each = heads / owners;
    const bool same_bits = promises_bits() && attention_classes % owners == 0;
    // More heads than a tile has rows; results that are compared with double precision, which takes its time.
    std::vector<Part> parts = heads > 48 ? few : same_bits ? many : fewer_tokens;
    parts[3] = same_bits ? Part{7, -1, 1} : Part{7, 530, 1};  // padding, which has no result
    SCOPED_TRACE(fmt::format("{}, {} owners, {} heads", name_of(dtype), owners, heads));
    Scene scene{{heads, 1, dim, value_dim}, 256, dtype};
    scene.window = window;
    scene.sinks = sinks;
    Step step(ops(), scene, parts);
    const Tensor whole = step.attend(ops());
    const int64_t tokens = step.tokens();
    Tensor queries(device(), dtype, {owners, tokens, each * dim}), result(device(), dtype, whole.shape());
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < heads * dim; ++i)
        set(queries, (i / (each * dim) * tokens + t) * each * dim + i % (each * dim),
            get(step.queries(), t * heads * dim + i));
    const Tensor all_sinks = step.sinks(device());
    std::vector<Tensor> partials;
    for (int64_t owner = 0; owner < owners; ++owner) {
      const ContextShare share{owner, owners};
      partials.emplace_back(device(), DType::fp32, Shape{owners, tokens, each, value_dim + 2});
      AttentionCall call{
          queries,       scene.heads, step.batch_of(device(), share), step.pages(), partials.back().view(),
          scene.scale(), window};
      call.context = share;
      ops().attention(call);
    }
    for (int64_t member = 0; member < owners; ++member) {  // what all_to_all gives it
      Tensor received(device(), DType::fp32, {owners, tokens, each, value_dim + 2}),
          out(device(), dtype, {tokens, each * value_dim});
      for (int64_t owner = 0; owner < owners; ++owner)
        device().copy(received.view().rows(owner, 1).data,
                      partials[static_cast<size_t>(owner)].view().rows(member, 1).data,
                      received.view().rows(owner, 1).bytes());
      ops().merge_partials(received, sinks ? all_sinks.view().rows(member * each, each) : ConstTensorView{},
                           out);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < each * value_dim; ++i)
          set(result, (t * heads + member * each) * value_dim + i, get(out, t * each * value_dim + i));
    }
    if (!same_bits) {
      ASSERT_NO_FATAL_FAILURE(expect_exact(scene, parts, step, result));
      continue;
    }
    step.for_tokens([&](size_t, int64_t token, int position) {
      if (position < 0) return;
      EXPECT_EQ(floats_of(result.view().rows(token, 1)), floats_of(whole.view().rows(token, 1))) << position;
    });
  }
}

// The contract of merge_classes, in plain loops.
TEST(AttentionClasses, MergeAtDistanceFourThenTwoThenOne) {
  for (const auto& [count, expected] : {std::pair<int, const char*>{8, "(((0+4)+(2+6))+((1+5)+(3+7)))"},
                                        {4, "((0+2)+(1+3))"},
                                        {3, "((0+2)+1)"},
                                        {5, "(((0+4)+2)+(1+3))"},
                                        {1, "0"}}) {
    std::vector<std::string> sums;
    for (int i = 0; i < count; ++i) sums.push_back(fmt::format("{}", i));
    merge_classes(count, [&](int64_t from, int64_t into) {
      std::string& sum = sums[static_cast<size_t>(into)];
      sum = fmt::format("({}+{})", sum, sums[static_cast<size_t>(from)]);
    });
    EXPECT_EQ(sums[0], expected);
  }
}

TEST_P(Attention, RefusesByNameWhatGoesBeyondPlainCausalAttention) {
  const Scene scene = scene_of(32, 2, 16, DType::fp32);
  Step step(ops(), scene, {{0, 0, 3}});
  Tensor out(device(), scene.dtype, {3, scene.heads.query_width()});
  AttentionCall plain{step.queries(), scene.heads, step.batch(), step.pages(), out, scene.scale()};
  const auto refused = [&](auto change) -> std::string {
    AttentionCall call = plain;
    change(call);
    try {
      ops().attention(call);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::input);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused([](AttentionCall&) {}), "");
  EXPECT_EQ(refused([](AttentionCall& call) { call.soft_cap = 50; }),
            "attention with a soft cap on scores (50) is not supported");
  EXPECT_EQ(refused([](AttentionCall& call) { call.pages.key_scale = 0.5f; }),
            fmt::format("attention with scales (0.5, 1) of {} keys and values is not supported",
                        name_of(scene.dtype)));
  EXPECT_EQ(refused([](AttentionCall& call) { call.pages.value_scale = 2; }),
            fmt::format("attention with scales (1, 2) of {} keys and values is not supported",
                        name_of(scene.dtype)));
}

TEST_P(Attention, PagesGiveBackWhatWasWrittenAndTakeNoMoreBytesThanTheirLayoutSays) {
  for (const DType dtype : activation_types()) {
    const KvLayout layout{3, 32, 16, dtype};
    EXPECT_EQ(layout.block_bytes(), 2 * 3 * 32 * 16 * size_of(dtype));
    const Shape shape{5, static_cast<int64_t>(layout.block_bytes())};
    GuardedTensor memory(device(), dtype, {2, 80, 3, 32});
    const KvPages pages{{memory.view().data, DType::uint8, shape}, layout};
    const Tensor keys = random_tensor(device(), dtype, {80, 3, 32}, 1),
                 values = random_tensor(device(), dtype, {80, 3, 32}, 2);
    write_kv(ops(), pages, keys, values);
    EXPECT_TRUE(memory.intact());
    Tensor read_keys(device(), dtype, keys.shape()), read_values(device(), dtype, keys.shape());
    read_kv(ops(), pages, read_keys, read_values);
    EXPECT_TRUE(same_bits(read_keys, keys));
    EXPECT_TRUE(same_bits(read_values, values));
  }
}

}  // namespace
}  // namespace maniple
