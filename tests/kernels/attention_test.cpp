#include <kernels/subjects.hpp>
#include <support/cover.hpp>
#include <support/kv_pages.hpp>

#include <map>
#include <numeric>

namespace maniple {
namespace {

using namespace testing;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// A sequence's keys, values and queries are functions of (sequence, position)
// alone, for any blocks and chunks. past -1 with one query is padding.
struct Part {
  int sequence;
  int past;
  int query;
};

struct Scene {
  HeadLayout heads;
  int64_t block_size;
  DType dtype;
  float query_scale = 3;
  bool reversed_blocks = false;

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(heads.head_dim)); }
};

enum Kind { query = 1, key = 2, value = 3 };

// Rounded to the scene's type.
float element(const Scene& scene, Kind kind, int sequence, int64_t position, int64_t index) {
  const auto seed = static_cast<uint64_t>(kind * 1000 + sequence),
             place = static_cast<uint64_t>(position * 10000 + index);
  const float raw = uniform(seed, place) * (kind == query ? scene.query_scale : 1.0f);
  return rounded(scene.dtype, raw);
}

// The tensors of a step. Every slot that no token of the scene wrote holds NaN.
// Table entries past the context are invalid, and so is the table of seat 0,
// which belongs to padding. Sequences take the seats from the last one down.
class Step {
 public:
  Step(Ops& ops, const Scene& scene, const std::vector<Part>& parts)
      : scene_(scene),
        parts_(parts),
        layout_{scene.heads.kv_heads, scene.heads.head_dim, scene.block_size, scene.dtype} {
    const HeadLayout& heads = scene.heads;
    Device& device = ops.device();
    int64_t blocks = 2;  // two that no sequence uses
    size_t width = 1;
    for (const Part& part : parts) {
      tables_.push_back(take_blocks(part.past + part.query, blocks));
      width = std::max(width, tables_.back().size() + 3);
    }
    if (scene.reversed_blocks)
      for (auto& table : tables_)
        for (int32_t& block : table) block = static_cast<int32_t>(blocks - 1 - block);
    cache_ = Tensor(device, DType::uint8, {blocks, static_cast<int64_t>(layout_.block_bytes())});
    keys_ = Tensor(device, scene.dtype, {pages().slots(), heads.kv_heads, heads.head_dim});
    values_ = Tensor(device, scene.dtype, keys_.shape());
    fill(keys_, nan);
    fill(values_, nan);
    write_kv(ops, pages(), keys_, values_);
    fill_batch(device, width);
    queries_ = Tensor(device, scene.dtype, {tokens(), heads.query_width()});
    for_tokens([&](size_t p, int64_t token, int position) {
      for (int64_t i = 0; i < heads.query_width(); ++i)
        set(queries_, token * heads.query_width() + i,
            element(scene, query, parts_[p].sequence, position, i));
    });
  }

  void write_cache(Ops& ops) {
    for (size_t p = 0; p < parts_.size(); ++p)
      for (int position = 0; position < parts_[p].past + parts_[p].query; ++position)
        for (int64_t i = 0; i < scene_.heads.kv_width(); ++i) {
          set(keys_, cache_index(p, position, i), element(scene_, key, parts_[p].sequence, position, i));
          set(values_, cache_index(p, position, i), element(scene_, value, parts_[p].sequence, position, i));
        }
    write_kv(ops, pages(), keys_, values_);
  }

  // f(part, token, position)
  template <typename F>
  void for_tokens(F f) const {
    int64_t token = 0;
    for (size_t p = 0; p < parts_.size(); ++p)
      for (int i = 0; i < parts_[p].query; ++i) f(p, token++, parts_[p].past + i);
  }
  int64_t tokens() const {
    return std::accumulate(parts_.begin(), parts_.end(), int64_t{0},
                           [](int64_t sum, const Part& part) { return sum + part.query; });
  }
  int32_t slot(size_t part, int64_t position) const {
    const auto block = static_cast<size_t>(position / scene_.block_size);
    return static_cast<int32_t>(tables_[part][block] * scene_.block_size + position % scene_.block_size);
  }
  // Index of element i of the KV heads at a position, in the arrays of read_kv and write_kv.
  int64_t cache_index(size_t part, int64_t position, int64_t i) const {
    return slot(part, position) * scene_.heads.kv_width() + i;
  }
  AttentionBatch batch() const { return {starts_, past_, seats_, table_, positions_, slots_}; }
  // The same for one owner of a shared context: the entries of other owners are -1.
  AttentionBatch batch_of(Device& device, const ContextShare& context) {
    const Shape& shape = table_.shape;
    std::vector<int32_t> table(table_.as<int32_t>(), table_.as<int32_t>() + shape.elements());
    for (size_t i = 0; i < table.size(); ++i)
      if (static_cast<int64_t>(i) % shape[1] % context.owners != context.owner) table[i] = -1;
    own_tables_.push_back(int_tensor(device, table));
    AttentionBatch mine = batch();
    mine.block_tables = own_tables_.back().view().reshaped(shape);
    return mine;
  }
  KvPages pages() { return {cache_, layout_}; }
  ConstTensorView queries() const { return queries_; }

  void prepare(Ops& ops) {
    ops.prepare_attention({queries_, scene_.heads, batch(), pages(), {}, scene_.scale()});
  }
  Tensor attend(Ops& ops) {
    write_cache(ops);
    Tensor out(ops.device(), scene_.dtype, queries_.shape());
    const PoisonedRows rows(ops.device(), queries_);
    ops.attention({rows.view(), scene_.heads, batch(), pages(), out, scene_.scale()});
    return out;
  }

 private:
  std::vector<int32_t> take_blocks(int length, int64_t& blocks) const {
    std::vector<int32_t> table(static_cast<size_t>((length + scene_.block_size - 1) / scene_.block_size));
    for (int32_t& block : table) block = static_cast<int32_t>(blocks++);
    std::reverse(table.begin(), table.end());
    return table;
  }

  void fill_batch(Device& device, size_t width) {
    std::vector<int32_t> starts{0}, past, seats, positions, slots,
        table((parts_.size() + 1) * width, 0x3fffffff);
    for (size_t p = 0; p < parts_.size(); ++p) {
      starts.push_back(starts.back() + parts_[p].query);
      past.push_back(parts_[p].past);
      seats.push_back(parts_[p].past < 0 ? 0 : static_cast<int32_t>(parts_.size() - p));
      std::copy(tables_[p].begin(), tables_[p].end(),
                table.begin() + static_cast<std::ptrdiff_t>((parts_.size() - p) * width));
    }
    for_tokens([&](size_t p, int64_t, int position) {
      positions.push_back(std::max(position, 0));
      slots.push_back(position < 0 ? -1 : slot(p, position));
    });
    seats_ = int_tensor(device, seats);
    starts_ = int_tensor(device, starts);
    past_ = int_tensor(device, past);
    positions_ = int_tensor(device, positions);
    slots_ = int_tensor(device, slots);
    table_storage_ = int_tensor(device, table);
    table_ = table_storage_.view().reshaped(
        {static_cast<int64_t>(parts_.size() + 1), static_cast<int64_t>(width)});
  }

  Scene scene_;
  std::vector<Part> parts_;
  std::vector<std::vector<int32_t>> tables_;
  KvLayout layout_;
  Tensor cache_, keys_, values_, queries_, starts_, past_, seats_, positions_, slots_, table_storage_;
  ConstTensorView table_;
  std::vector<Tensor> own_tables_;
};

// Softmax attention of one query head in double precision; `magnitude` gets the sum of p * |v| of each
// element.
std::vector<double> exact_attention(const Scene& scene, int sequence, int position, int64_t head,
                                    std::vector<double>& magnitude) {
  const int64_t dim = scene.heads.head_dim, kv_head = head / (scene.heads.query_heads / scene.heads.kv_heads);
  std::vector<double> weights, out(static_cast<size_t>(dim));
  magnitude.assign(out.size(), 0);
  for (int p = 0; p <= position; ++p) {
    double score = 0;
    for (int64_t i = 0; i < dim; ++i)
      score += static_cast<double>(element(scene, query, sequence, position, head * dim + i)) *
               element(scene, key, sequence, p, kv_head * dim + i);
    weights.push_back(std::exp(score * static_cast<double>(scene.scale())));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (int p = 0; p <= position; ++p)
    for (size_t i = 0; i < out.size(); ++i) {
      const double term = weights[static_cast<size_t>(p)] / total *
                          element(scene, value, sequence, p, kv_head * dim + static_cast<int64_t>(i));
      out[i] += term;
      magnitude[i] += std::abs(term);
    }
  return out;
}

// Scores have a few fp32 rounding errors; results, and perhaps weights, are rounded.
void expect_within(double roundings, const Scene& scene, const std::vector<Part>& parts, const Step& step,
                   ConstTensorView out) {
  const double tolerance = roundings * rounding(scene.dtype) + 1e-5;
  const int64_t dim = scene.heads.head_dim;
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

// Twice the bound of expect_exact for bf16 on tensor cores.
constexpr double off_bound = 2 * (2 * 0x1p-8 + 1e-5);

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

// Groups of three make an odd number of heads.
Scene scene_of(int64_t dim, int64_t group, int64_t block_size, DType dtype) {
  const int64_t kv_heads = group == 3 ? 1 : 2;
  return {{kv_heads * group, kv_heads, dim}, block_size, dtype};
}

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
  for (const auto& [dtype, group] : each_value(activation_types(), std::vector<int64_t>{2, 3})) {
    const Scene scene = scene_of(64, group, 32, dtype);
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

TEST_P(Attention, PaddingRowsReadNothingAndChangeNoOtherRow) {
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    const Scene scene = scene_of(32, 2, 16, dtype);
    std::vector<Part> padded;
    for (const Part& part : decode_and_chunks) padded.insert(padded.end(), {{20, -1, 1}, part, {21, -1, 1}});
    auto found = rows(ops(), scene, padded);
    found.erase({20, -1});
    found.erase({21, -1});
    expect_same(found, rows(ops(), scene, decode_and_chunks));
    rows(ops(), scene, {{20, -1, 1}, {21, -1, 1}});
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
  }
}

TEST_P(Attention, DoesNotDependOnTheNumberOfThreads) {
  for (const DType dtype : activation_types()) {
    const Scene scene = scene_of(64, 3, 16, dtype);
    const auto alone = rows(*with_threads(1).ops, scene, decode_and_chunks);
    for (const int threads : {3, 5}) {
      const Backend backend = with_threads(threads);
      expect_same(rows(*backend.ops, scene, decode_and_chunks), alone);
    }
  }
}

// Owners see the pages of their own splits only; none of them may be empty for all rows.
TEST_P(Attention, OfOwnersOfAContextMergesToTheBitsOfOneOwner) {
  const std::vector<Part> many{{0, 0, 1},    {1, 254, 3},  {2, 511, 1},  {7, -1, 1},
                               {3, 512, 20}, {4, 2046, 4}, {5, 4096, 1}, {6, 2400, 70}};
  const std::vector<Part> fewer_tokens{{0, 0, 1},    {1, 254, 3},  {2, 511, 1},
                                       {3, 512, 20}, {5, 2304, 1}, {6, 900, 9}};
  const std::vector<Part> few{{0, 0, 1}, {1, 254, 3}, {4, 2046, 4}, {7, -1, 1}};
  for (const auto& [dtype, shape] :
       each_value(std::vector{DType::bf16, DType::fp32},
                  std::vector<std::pair<int64_t, int64_t>>{
                      {2, 2}, {4, 4}, {8, 8}, {3, 6}, {6, 6}, {16, 16}, {2, 98}, {8, 56}})) {
    const auto& [owners, heads] = shape;
    const int64_t each = heads / owners, dim = 32;
    const bool same_bits = promises_bits() && attention_classes % owners == 0;
    // More heads than a tile has rows; results that are compared with double precision, which takes its time.
    std::vector<Part> parts = heads > 48 ? few : same_bits ? many : fewer_tokens;
    parts[3] = same_bits ? Part{7, -1, 1} : Part{7, 530, 1};  // padding, which has no result
    SCOPED_TRACE(fmt::format("{}, {} owners, {} heads", name_of(dtype), owners, heads));
    const Scene scene{{heads, 1, dim}, 256, dtype};
    Step step(ops(), scene, parts);
    const Tensor whole = step.attend(ops());
    const int64_t tokens = step.tokens();
    Tensor queries(device(), dtype, {owners, tokens, each * dim}), result(device(), dtype, whole.shape());
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < heads * dim; ++i)
        set(queries, (i / (each * dim) * tokens + t) * each * dim + i % (each * dim),
            get(step.queries(), t * heads * dim + i));
    std::vector<Tensor> partials;
    for (int64_t owner = 0; owner < owners; ++owner) {
      const ContextShare share{owner, owners};
      partials.emplace_back(device(), DType::fp32, Shape{owners, tokens, each, dim + 2});
      AttentionCall call{
          queries,      scene.heads, step.batch_of(device(), share), step.pages(), partials.back().view(),
          scene.scale()};
      call.context = share;
      ops().attention(call);
    }
    for (int64_t member = 0; member < owners; ++member) {  // what all_to_all gives it
      Tensor received(device(), DType::fp32, {owners, tokens, each, dim + 2}),
          out(device(), dtype, {tokens, each * dim});
      for (int64_t owner = 0; owner < owners; ++owner)
        device().copy(received.view().rows(owner, 1).data,
                      partials[static_cast<size_t>(owner)].view().rows(member, 1).data,
                      received.view().rows(owner, 1).bytes());
      ops().merge_partials(received, out);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < each * dim; ++i)
          set(result, t * heads * dim + member * each * dim + i, get(out, t * each * dim + i));
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
  EXPECT_EQ(refused([](AttentionCall& call) { call.window = 4096; }),
            "attention with a window (4096 positions) is not supported");
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

// --- rotary ---

struct RotaryInputs {
  Tensor qkv, cos_sin, query_norm, key_norm;
  HeadNorms norms() const { return {query_norm, key_norm, query_norm ? 1e-6f : 0.0f}; }
};

// rotary_width 0: that of the heads.
RotaryInputs rotary_inputs(Device& device, const Scene& scene, int64_t tokens, bool normed,
                           int64_t rotary_width = 0) {
  const int64_t dim = scene.heads.head_dim, positions = 700;
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

TEST_P(Attention, RotaryRotatesQueriesAndKeysAndStoresExactlyTheTokensOfTheBatch) {
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
TEST_P(Attention, RotaryMakesTheQueryOfATokenWithoutASlot) {
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
TEST_P(Attention, OfWhatRotaryStoredInChunksHasTheBitsOfTheWholePrompt) {
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

TEST_P(Attention, RotaryOfATokenDoesNotDependOnBatchOrThreads) {
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
