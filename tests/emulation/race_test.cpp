// Each family of kernels runs over the race detector, at small odd sizes; then once more for each barrier, warp barrier, wait and
// fence that it has, without this one: the detector must notice.
#include <emulation/device_test.hpp>
#include <emulation/race_detector.hpp>
#include <kernels/cuda/attention.hpp>
#include <kernels/cuda/elementwise.hpp>
#include <kernels/cuda/experts.hpp>
#include <kernels/cuda/sampling.hpp>
#include <kernels/cuda/skinny_gemm.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace maniple {
namespace {

using emulation::EmulationError;
using emulation::RaceDetector;
using emulation::Site;
using testing::uniform;

// A device for one run of a family, and what it allocated.
class Scene {
 public:
  // whole: more sizes and types.
  explicit Scene(uint64_t order, bool whole = false) : device_(order), whole_(whole) {}
  bool whole() const { return whole_; }
  device::Stream stream() { return device_.stream(); }
  template <typename T>
  T* put(const std::vector<T>& values) {
    tensors_.push_back(testing::uploaded(device_.memory(), values));
    return testing::data<T>(tensors_.back());
  }
  template <typename T>
  T* room(int count) {
    return put(std::vector<T>(static_cast<size_t>(count)));
  }
  float* floats(int count) {
    std::vector<float> values;
    for (int i = 0; i < count; ++i) values.push_back(uniform(tensors_.size(), static_cast<uint64_t>(i)));
    return put(values);
  }
  void* elements(DType dtype, int count) {
    if (dtype == DType::fp32) return floats(count);
    std::vector<uint16_t> values;
    for (int i = 0; i < count; ++i) {
      const float value = uniform(tensors_.size(), static_cast<uint64_t>(i));
      values.push_back(dtype == DType::bf16 ? BFloat16(value).bits : Float16(value).bits);
    }
    return put(values);
  }
  uint8_t* codes(int count) {
    std::vector<uint8_t> values;
    for (int i = 0; i < count; ++i) values.push_back(static_cast<uint8_t>(i * 37 % 120));
    return put(values);
  }

 private:
  device::DeviceUnderTest device_;
  bool whole_;
  std::vector<Tensor> tensors_;
};

// --- the families ---

struct Sequence {
  int past, queries;
};
struct Cache {
  DType dtype = DType::bf16;
  int head_dim = 64;
  bool codes = false;
  int owner = 0, owners = 1;
  int classes = 8;
};

cuda::AttentionArguments attention(Scene& scene, const Cache& cache, const std::vector<Sequence>& sequences) {
  constexpr int block_size = 16, kv_heads = 2, heads = 6;
  std::vector<int32_t> starts{0}, past, seats, tables;
  int width = 0;
  for (const auto& [before, queries] : sequences) {
    starts.push_back(starts.back() + queries);
    past.push_back(before);
    seats.push_back(static_cast<int32_t>(seats.size()));
    width = std::max(width, (before + queries + block_size - 1) / block_size);
  }
  tables.resize(sequences.size() * static_cast<size_t>(width));
  std::iota(tables.begin(), tables.end(), 0);
  const int tokens = starts.back(),
            kept = static_cast<int>(tables.size()) * kv_heads * block_size * cache.head_dim;
  const auto kept_data = [&]() -> void* {
    return cache.codes ? scene.codes(kept) : scene.elements(cache.dtype, kept);
  };
  cuda::AttentionArguments a{};
  a.dtype = cache.dtype;
  a.queries = scene.elements(cache.dtype, cache.owners * tokens * heads * cache.head_dim);
  a.out = scene.room<float>(cache.owners * tokens * heads * (cache.head_dim + 2));
  a.keys = kept_data();
  a.values = kept_data();
  a.query_starts = scene.put(starts);
  a.past_lengths = scene.put(past);
  a.seats = scene.put(seats);
  a.block_tables = scene.put(tables);
  a.table_width = width;
  a.sequences = static_cast<int>(sequences.size());
  a.tokens = tokens;
  a.query_heads = heads;
  a.kv_heads = kv_heads;
  a.head_dim = cache.head_dim;
  a.block_size = block_size;
  a.scale = 0.1f;
  a.owner = cache.owner;
  a.owners = cache.owners;
  a.classes = cache.classes;
  a.codes = cache.codes;
  return a;
}

void decode(Scene& scene) {
  const auto attend = [&](const Cache& cache, int slots, const std::vector<Sequence>& sequences) {
    const cuda::AttentionArguments a = attention(scene, cache, sequences);
    float* const partials =
        scene.floats(slots * static_cast<int>(cuda::decode_slot_floats(a.query_heads, a.head_dim)));
    ASSERT_TRUE(cuda::attention_decode(
        scene.stream(), a,
        {partials, slots,
         scene.room<int32_t>(static_cast<int>(cuda::decode_counters(a.sequences, a.query_heads)))}));
  };
  // The block that runs first draws all parts but five: it goes on after it has combined those of the fourth sequence.
  const std::vector<Sequence> sequences{{0, 1}, {600, 1}, {3, 2}, {300, 1}, {70, 1}};
  attend({}, 8, sequences);
  attend({DType::fp16, 16, true}, 8, sequences);
  attend({DType::bf16, 16, false, 0, 1, 2}, 3, {{600, 1}, {7, 1}});  // one class has two splits
  attend({DType::bf16, 16, false, 1, 2}, 8, sequences);
  if (scene.whole())
    for (const int head_dim : {32, 96, 128, 256})
      for (const bool codes : {false, true}) attend({DType::bf16, head_dim, codes}, 8, sequences);
}

void prefill(Scene& scene) {
  const std::vector<Sequence> sequences{{70, 45}, {0, 1}, {130, 3}};
  const auto attend = [&](const Cache& cache) {
    ASSERT_TRUE(cuda::attention_prefill(scene.stream(), attention(scene, cache, sequences)));
  };
  attend({});
  attend({DType::fp16, 16, true});
  attend({DType::bf16, 16, false, 1, 2});
  if (scene.whole())
    for (const int head_dim : {32, 96, 128, 256})
      for (const bool codes : {false, true}) attend({DType::bf16, head_dim, codes});
}

void untuned(Scene& scene) {
  const std::vector<Sequence> sequences{{40, 3}, {0, 1}, {290, 1}};
  for (const Cache& cache :
       {Cache{DType::fp32, 48}, Cache{DType::bf16, 48, true}, Cache{DType::fp32, 16, false, 1, 2}})
    cuda::attention_untuned(scene.stream(), attention(scene, cache, sequences),
                            {cache.head_dim, cache.head_dim, 7, scene.floats(16)});
  constexpr int owners = 3, rows = 5, dims = 48;
  cuda::merge_partials(scene.stream(), DType::bf16, scene.floats(owners * rows * (dims + 2)), owners, rows,
                       dims, scene.floats(rows), rows, scene.room<uint16_t>(rows * dims));
}

cuda::SkinnyGemmWorkspace slices(Scene& scene) {
  return {scene.floats(cuda::skinny_partial_floats / 4), scene.room<int32_t>(cuda::skinny_arrivals)};
}

void skinny(Scene& scene) {
  const auto multiply = [&](int m, int n, int k, bool gated) {
    const cuda::SkinnyGemmArguments a{DType::bf16,
                                      DType::bf16,
                                      scene.elements(DType::bf16, m * k),
                                      scene.elements(DType::bf16, n * k),
                                      {.bias = scene.floats(n)},
                                      scene.room<uint16_t>(m * n),
                                      m,
                                      n,
                                      k,
                                      gated};
    ASSERT_TRUE(cuda::skinny_gemm(scene.stream(), a, slices(scene)));
  };
  multiply(5, 70, 1032, false);  // four slices
  multiply(3, 33, 517, false);   // not aligned
  multiply(8, 66, 1096, true);
  if (scene.whole())
    for (const int k : {40, 256, 1100}) multiply(8, 130, k, k == 256);
}

cuda::CodeMatrix matrix(Scene& scene, int rows, int columns, int bits, int group) {
  const int row_bytes = (columns * bits + 127) / 128 * 16, groups = group > 0 ? (columns - 1) / group + 1 : 1;
  return {scene.codes(rows * row_bytes),
          scene.floats(rows * groups),
          nullptr,
          bits,
          false,
          groups > 1,
          DType::fp32,
          static_cast<uint8_t>(1 << (bits - 1)),
          row_bytes,
          columns,
          group > 0 ? group : 1 << 30,
          groups,
          0,
          1};
}

void dequant(Scene& scene) {
  const auto multiply = [&](int m, int n, int k, int bits, int group, bool gated) {
    const cuda::SkinnyGemmArguments a{DType::fp16,
                                      DType::fp32,
                                      scene.elements(DType::fp16, m * k),
                                      nullptr,
                                      {.codes = matrix(scene, n, k, bits, group)},
                                      scene.room<float>(m * n),
                                      m,
                                      n,
                                      k,
                                      gated};
    ASSERT_TRUE(cuda::skinny_gemm(scene.stream(), a, slices(scene)));
  };
  multiply(3, 33, 2056, 4, 128, false);
  multiply(9, 31, 1032, 8, 0, false);
  multiply(33, 66, 520, 4, 24, true);
  if (scene.whole())
    for (const int m : {8, 16, 32, 64})
      for (const int k : {40, 256, 1096}) multiply(m, 130, k, k == 256 ? 4 : 8, 64, k == 256);
}

void grouped(Scene& scene) {
  constexpr int experts = 3, n = 70, k = 520;
  const auto multiply = [&](DType dtype, int most_rows, int bits, bool gated, bool gathers) {
    const std::vector<int32_t> offsets{0, most_rows / 2, most_rows / 2, most_rows - 1};
    std::vector<const void*> weights;
    std::vector<cuda::CodeMatrix> codes;
    std::vector<int32_t> x_rows;
    for (int e = 0; e < experts; ++e) {
      weights.push_back(bits > 0 ? nullptr : scene.elements(dtype, n * k));
      if (bits > 0) codes.push_back(matrix(scene, n, k, bits, 128));
    }
    for (int i = 0; i < most_rows; ++i) x_rows.push_back(i * 5 % most_rows);
    cuda::GroupedArguments a{};
    a.dtype = dtype;
    a.out_type = DType::fp32;
    a.x = scene.elements(dtype, most_rows * k);
    a.x_rows = gathers ? scene.put(x_rows) : nullptr;
    a.offsets = scene.put(offsets);
    a.weights = scene.put(weights);
    a.out = scene.room<float>(most_rows * n);
    a.experts = experts;
    a.most_rows = most_rows;
    a.n = n;
    a.k = k;
    a.width = gated ? n / 2 : n;
    a.gated = gated;
    a.aligned = true;
    a.bits = bits;
    if (bits > 0) a.codes = scene.put(codes);
    cuda::grouped_product(scene.stream(), a);
  };
  multiply(DType::bf16, 13, 0, true, true);
  multiply(DType::fp16, 31, 4, false, false);
  multiply(DType::fp32, 11, 0, false, true);
  if (scene.whole())
    for (const int rows : {1, 20, 70, 130})
      for (const int bits : {0, 4, 8})
        for (const DType dtype : {DType::bf16, DType::fp32})
          multiply(dtype, rows, bits, rows == 20, rows > 20);
}

void codes(Scene& scene) {
  constexpr int rows = 5, columns = 77, stride = 80;
  const cuda::CodeMatrix m = matrix(scene, rows, columns, 4, 16),
                         whole_rows = matrix(scene, rows, columns, 8, 0);
  for (const cuda::CodeMatrix& expanded : {m, whole_rows})
    cuda::expand_rows(scene.stream(), expanded, scene.put(std::vector<int32_t>{4, 0, 9}), 0, rows,
                      DType::bf16, scene.room<uint16_t>(3 * columns), 3);
  for (const auto rule : {cuda::InputRounding::none, cuda::InputRounding::per_token,
                          cuda::InputRounding::per_group, cuda::InputRounding::fixed}) {
    cuda::RoundArguments a{};
    a.dtype = DType::bf16;
    a.x = scene.elements(DType::bf16, rows * columns);
    a.rule = rule;
    a.group = 16;
    a.input_scale = 0.1f;
    a.out = scene.room<uint16_t>(rows * stride);
    a.stride = stride;
    a.input_scales = scene.room<float>(rows);
    a.rows = rows;
    a.columns = columns;
    cuda::round_inputs(scene.stream(), a);
  }
  cuda::row_abs_maxima(scene.stream(), DType::fp32, scene.floats(rows * columns), scene.room<float>(rows),
                       rows, columns);
  cuda::finish_sums(scene.stream(), {whole_rows, scene.floats(rows), scene.floats(columns)},
                    scene.floats(rows * rows), DType::fp32, rows, rows, DType::fp16,
                    scene.room<uint16_t>(rows * columns), 3, columns);
  std::vector<int32_t> order(columns);
  for (int i = 0; i < columns; ++i) order[static_cast<size_t>(i)] = i * 10 % columns;
  cuda::gather_columns(scene.stream(), DType::fp16, scene.elements(DType::fp16, rows * columns),
                       scene.put(order), scene.room<uint16_t>(rows * columns), rows, columns, columns);
}

void sampling(Scene& scene) {
  constexpr int rows = 3;
  std::vector<SamplingRow> plain(rows);
  for (SamplingRow& row : plain) row.temperature = 0.7f;
  const SamplingRow* const how = scene.put(plain);
  for (const int width : {104, 8200}) {
    const cuda::Logits logits{scene.floats(rows * width), rows, width, 10, width - 3};
    cuda::best_candidates(scene.stream(), logits, how, nullptr, scene.room<Candidate>(2 * rows),
                          scene.room<Candidate>(rows));
    float* const maxima = scene.room<float>(rows);
    cuda::row_maxima(scene.stream(), logits, maxima);
    cuda::exp_sums(scene.stream(), logits, maxima, 1, vocabulary_chunks,
                   scene.room<float>(rows * vocabulary_chunks));
  }
}

// Ties beyond the lists, in two shards; then other filters.
void filtered(Scene& scene) {
  constexpr int rows = 2, width = 8200;
  std::vector<SamplingRow> how(rows);
  for (SamplingRow& row : how) row.temperature = 0.7f;
  how[0].top_k = 5;
  how[0].min_p = 0.1f;
  how[0].top_p = how[1].top_p = 0.9f;
  const int32_t* const listed = scene.put(std::vector<int32_t>{0});
  const SamplingRow* const draws = scene.put(how);
  Cut* const cuts = scene.room<Cut>(rows);
  const float* const flat = scene.put(std::vector<float>(rows * width, 0.5f));
  CandidateList* const lists = scene.room<CandidateList>(2);
  const cuda::Logits shards[] = {{flat, rows, width, 0, width}, {flat, rows, width, width, width - 5}};
  for (const int i : {0, 1})
    cuda::candidates(scene.stream(), shards[i], listed, 1, scene.room<CandidateList>(cuda::max_parts),
                     lists + i);
  cuda::filter_candidates(scene.stream(), lists, 2, shards[1], listed, 1, draws, cuts);
  std::vector<float> levels;  // the cut of top-p is among equal logits of both parts
  for (int i = 0; i < 2 * rows * 4200; ++i) levels.push_back(0.25f * static_cast<float>(i % 7));
  const cuda::Logits logits{scene.put(levels), rows, 4200, 0, 2 * 4200 - 5};
  const auto bytes = static_cast<size_t>(cuda::filter_bytes(logits));
  cuda::filter_logits(scene.stream(), logits, true, scene.put(std::vector<int32_t>{1}), 1, draws,
                      {scene.room<std::byte>(static_cast<int>(bytes)), bytes}, cuts);
}

// Where threads of half of a block, with loads of four, have the larger logits, and four of these threads the smallest of them: too many
// precede the bound of the first ones.
std::vector<float> larger_for_half_of_the_threads(int width) {
  std::vector<float> logits;
  for (int i = 0; i < width; ++i) {
    const int thread = i / 4 % 512;
    logits.push_back(0.001f * static_cast<float>(i) + (thread < 252 ? 200.0f : thread < 256 ? 100.0f : 0.0f));
  }
  return logits;
}

void first_entries(Scene& scene) {
  constexpr int width = 4400;
  const cuda::Logits logits{scene.put(larger_for_half_of_the_threads(width)), 1, width, 0, width};
  cuda::candidates(scene.stream(), logits, scene.put(std::vector<int32_t>{0}), 1, nullptr,
                   scene.room<CandidateList>(1));
}

void adjusted(Scene& scene) {
  constexpr int width = 4200, block_tokens = 16, length = 100;
  const std::vector<int32_t> words = words_of_lists({.stop_token_ids = {3, 4100},
                                                     .allowed_token_ids = {1, 2, 3, 4100, 4150},
                                                     .logit_bias = {{2, 1.0f}, {4101, 2.0f}},
                                                     .bad_word_ids = {{3}, {7, 3}}},
                                                    width);
  std::vector<int32_t> tokens(length + 12);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 5 * 1030);
  const std::vector<int32_t> blocks{0, 1, 2, 3, 4, 5, 6};
  const SequenceTables tables{{scene.put(tokens), tokens.size()},
                              {scene.put(blocks), blocks.size()},
                              {scene.put(words), words.size()},
                              block_tokens,
                              static_cast<int32_t>(blocks.size()),
                              0,
                              1,
                              static_cast<int32_t>(words.size())};
  float* const logits = scene.put(std::vector<float>(width, 0.5f));
  const cuda::Logits shard{logits, 1, width, 0, width - 3};
  cuda::adjust_logits(scene.stream(), logits, shard,
                      scene.put(std::vector<AdjustedRow>{{0, 0, length, 50, 1.2f, 0.5f, 0.5f, 1}}), 1,
                      tables);
  cuda::raw_logits(scene.stream(), shard, scene.put(std::vector<int32_t>{0}),
                   scene.put(std::vector<Candidate>{{1, 4, 0}}));
  cuda::logits_of(scene.stream(), shard, scene.put(std::vector<int32_t>{4}), scene.room<float>(1));
}

void experts(Scene& scene) {
  constexpr int tokens = 300, all = 9, per_token = 3, local = 6, most = 3, width = 130, k = 72;
  cuda::RoutingArguments a{};
  a.logits = scene.floats(tokens * all);
  a.tokens = tokens;
  a.all_experts = all;
  a.first = 2;
  a.experts = local;
  a.most = most;
  a.row_tokens = scene.room<int32_t>(tokens * most);
  a.row_weights = scene.room<float>(tokens * most);
  a.offsets = scene.room<int32_t>(local + 1);
  a.chosen = scene.room<int32_t>(tokens * most);
  a.places = scene.room<int32_t>(tokens * most);
  a.counts = scene.room<int32_t>(all);
  cuda::RouterArguments router{per_token, true};
  router.groups = 3;
  router.kept_groups = 2;
  router.top_two = true;
  cuda::route_tokens(scene.stream(), router, a);
  constexpr int few = 19;
  a.logits = scene.room<float>(few * all);
  a.tokens = few;
  a.product = {DType::bf16, scene.elements(DType::bf16, few * k), scene.floats(all * k), k,
               scene.room<int32_t>(3)};
  cuda::route_tokens(scene.stream(), router, a);
  cuda::combine_rows(scene.stream(), {scene.floats(tokens * most * width), a.row_weights, a.chosen, a.places,
                                      scene.room<float>(tokens * width), 7, most, width, local, 2});
}

void elementwise(Scene& scene) {
  constexpr int rows = 3;
  for (const int width : {77, 520}) {
    void* const x = scene.elements(DType::bf16, rows * width);
    void* const out = scene.room<uint16_t>(rows * width);
    const float* const wide = scene.floats(rows * width);
    cuda::norm_rows(scene.stream(),
                    {DType::bf16, x, wide, DType::fp32, scene.floats(width), 1e-6f, out, rows, width});
    cuda::add(scene.stream(), {DType::bf16, x, wide, DType::fp32, x, rows, width, true});
    cuda::add(scene.stream(), {DType::bf16, x, wide, DType::fp32, x, rows, width, false, scene.floats(rows)});
    cuda::gate_mul(scene.stream(), {}, DType::bf16, scene.elements(DType::bf16, 2 * rows * width), out, rows,
                   width);
    cuda::convert(scene.stream(), DType::fp32, wide, DType::bf16, out, rows * width);
    cuda::convert(scene.stream(), DType::bf16, x, DType::fp32, scene.room<float>(rows * width), rows * width);
    cuda::gather_rows(scene.stream(), scene.put(std::vector<int32_t>{2, 0, 7}), 0, rows, x, out, rows,
                      2 * width);
  }
}

void rotary_store(Scene& scene) {
  constexpr int tokens = 5, heads = 3, kv_heads = 2, dims = 96, block_size = 16;
  for (const bool codes : {false, true}) {
    cuda::RotaryArguments a{};
    a.dtype = DType::bf16;
    a.qkv = scene.elements(DType::bf16, tokens * (heads + 2 * kv_heads) * dims);
    a.cos_sin = scene.floats(tokens * dims);
    a.query_norm = a.key_norm = scene.floats(dims);
    a.epsilon = 1e-6f;
    a.norm_size = dims;
    a.positions = scene.put(std::vector<int32_t>{0, 1, 2, 3, 4});
    a.slots = scene.put(std::vector<int32_t>{17, 18, 3, -1, 0});
    a.queries = scene.room<uint16_t>(tokens * heads * dims);
    a.keys = scene.room<uint16_t>(2 * block_size * kv_heads * dims);
    a.values = scene.room<uint16_t>(2 * block_size * kv_heads * dims);
    a.tokens = tokens;
    a.query_heads = heads;
    a.kv_heads = kv_heads;
    a.head_dim = dims;
    a.rotary_width = dims;
    a.block_size = block_size;
    a.codes = codes;
    cuda::rotary_store(scene.stream(), a);
    float* const squares = scene.room<float>(tokens * (heads + kv_heads));
    cuda::head_squares(scene.stream(), a.dtype, a.qkv, squares, tokens, heads, kv_heads, dims);
    a.query_norm = a.key_norm = scene.floats(heads * dims);
    a.squares = squares;
    a.model_heads = heads + kv_heads;
    a.model_query_heads = heads;
    cuda::rotary_store(scene.stream(), a);
  }
}

void latent(Scene& scene) {
  constexpr int tokens = 5, heads = 3, values = 48, rotary = 16, keys = values + rotary, plain = 24;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    cuda::LatentArguments row{};
    row.dtype = dtype;
    row.from = scene.elements(dtype, tokens * keys);
    row.cos_sin = scene.floats(tokens * rotary);
    row.norm = scene.floats(values);
    row.epsilon = 1e-6f;
    row.norm_size = values;
    row.positions = scene.put(std::vector<int32_t>{0, 1, 2, 3, 4});
    row.slots = scene.put(std::vector<int32_t>{17, 18, 3, -1, 0});
    row.to = scene.elements(dtype, 19 * keys);
    row.tokens = tokens;
    row.heads = 1;
    row.from_lanes = row.key_dim = keys;
    row.value_dim = values;
    row.rotary_width = rotary;
    cuda::latent_rows(scene.stream(), row);

    cuda::LatentArguments queries = row;
    queries.from = scene.elements(dtype, tokens * heads * (plain + rotary));
    queries.norm = nullptr;
    queries.slots = nullptr;
    queries.to = scene.elements(dtype, tokens * heads * keys);
    queries.heads = heads;
    queries.from_lanes = plain + rotary;
    cuda::latent_rows(scene.stream(), queries);

    std::vector<const void*> weights;
    for (int head = 0; head < heads; ++head) weights.push_back(scene.elements(dtype, values * plain));
    for (const DType out : {dtype, DType::fp32})
      cuda::multiply_heads(scene.stream(), {dtype, out, queries.from, scene.put(weights),
                                            scene.elements(out, tokens * heads * keys), tokens, heads,
                                            plain + rotary, keys, values, plain});
  }
}

void seats(Scene& scene) {
  constexpr int count = 200;
  std::vector<int32_t> indices(count), ids(count);
  for (int i = 0; i < count; ++i) {
    indices[static_cast<size_t>(i)] = i * 7 % count;
    ids[static_cast<size_t>(i)] = i % 3 == 0 ? -1 - i : i;
  }
  int32_t* const last = scene.room<int32_t>(count);
  cuda::scatter(scene.stream(), scene.put(indices), scene.put(ids), last, count);
  cuda::resolve_last_tokens(scene.stream(), last, scene.put(ids), count, scene.put(indices),
                            scene.room<int32_t>(count));
  cuda::choose(scene.stream(), scene.room<Candidate>(2 * count), 2, count, scene.put(indices),
               scene.room<Candidate>(count), last);
}

// --- over the detector ---

struct Family {
  const char* name;
  void (*run)(Scene&);
  // What orders something there, but nothing that needs it.
  std::set<std::string> spare = {};
  bool has_sites = true;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

// block_reduce and block_sum_before end with a barrier for callers that use their scratch again.
const std::string reduced = "block_reduce, barrier 2", summed = "block_sum_before, barrier 2";
const std::vector<Family> families{
    {"decode", decode},
    {"prefill", prefill, {reduced}},
    {"untuned", untuned},
    {"skinny", skinny},
    {"dequant", dequant},
    {"grouped", grouped, {summed}},
    {"codes", codes, {reduced}},
    {"sampling", sampling},
    {"filtered", filtered, {"collect, barrier 3"}},
    {"first_entries", first_entries},
    {"adjusted", adjusted},
    {"experts", experts, {"is_last_to_arrive, barrier 1"}},  // one thread has written
    {"elementwise", elementwise, {reduced}},
    {"rotary_store", rotary_store, {}, false},
    {"latent", latent, {}, false},
    {"seats", seats, {}, false}};

std::string race_of(const Family& family, RaceDetector& detector, Scene scene, const Site& ignored = {}) {
  detector.ignore(ignored);
  try {
    family.run(scene);
  } catch (const EmulationError& error) {
    return error.what();
  }
  return "";
}

class Races : public ::testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Of, Races, ::testing::ValuesIn(families),
                         [](const auto& family) { return std::string(family.param.name); });

TEST_P(Races, AreNotThere) {
  const char* const asked = std::getenv("MANIPLE_WHOLE");
  const bool whole = asked && std::string(asked) == "yes";
  RaceDetector detector;
  for (uint64_t order = 2; order < (whole ? 4 : 3); ++order)
    EXPECT_EQ(race_of(GetParam(), detector, Scene(order, whole)), "");
}

TEST_P(Races, AreFoundWhereASiteThatOrdersIsIgnored) {
  RaceDetector detector(false);
  ASSERT_EQ(race_of(GetParam(), detector, Scene(1)), "");
  const std::set<Site> sites = detector.sites();
  std::map<std::string, int> numbers;  // of the sites of a function, by kind
  std::set<std::string> spare;
  for (const Site& site : sites) {
    const std::string kind = site.function + ", " + site.kind,
                      name = kind + ' ' + std::to_string(++numbers[kind]);
    if (race_of(GetParam(), detector, Scene(2), site).empty()) spare.insert(name);
  }
  EXPECT_EQ(spare, GetParam().spare);
  EXPECT_EQ(sites.size() > spare.size(), GetParam().has_sites);
}

// Counts what kernels read of some memory.
class ReadCounter : public RaceDetector {
 public:
  ReadCounter(const float* begin, int count) : begin_(begin), end_(begin + count) {}
  void access(const void* place, size_t bytes, bool writes, const void* caller) override {
    RaceDetector::access(place, bytes, writes, caller);
    if (writes || place < begin_ || place >= end_) return;
    bytes_ += bytes;
    ++loads_;
  }
  // The times that all of it was read since the last call, by loads of so many bytes on average.
  double times_read(double bytes_a_load) {
    const double loads = static_cast<double>(std::exchange(loads_, 0));
    const double bytes = static_cast<double>(std::exchange(bytes_, 0));
    EXPECT_GE(bytes, bytes_a_load * loads);
    return bytes / static_cast<double>((end_ - begin_) * sizeof(float));
  }

 private:
  const float *begin_, *end_;
  size_t bytes_ = 0, loads_ = 0;
};

// Rows of different logits, in order, with few allowed tokens, of which too many precede a bound, and all equal, where top-k keeps all and cuts are among them.
TEST(FilteredDraw, ReadsARowAtMostFiveTimes) {
  constexpr int width = 8800;
  Scene scene(1);
  const int32_t* const listed = scene.put(std::vector<int32_t>{0});
  CandidateList *const list = scene.room<CandidateList>(1), *const parts =
                                                                scene.room<CandidateList>(cuda::max_parts);
  Cut* const cut = scene.room<Cut>(1);
  Candidate *const drawn = scene.room<Candidate>(1), *const of_parts = scene.room<Candidate>(cuda::max_parts);
  std::vector<float> ascending(width), masked(width, std::numeric_limits<float>::lowest());
  for (int i = 0; i < width; ++i) ascending[static_cast<size_t>(i)] = 0.001f * static_cast<float>(i);
  for (int i = 0; i < width; i += 797) masked[static_cast<size_t>(i)] = 0.0001f * static_cast<float>(i);
  const std::vector<float> descending(ascending.rbegin(), ascending.rend()),
      half = larger_for_half_of_the_threads(width);
  SamplingRow draw;
  draw.temperature = 0.1f;
  const std::vector<std::tuple<int, float, float>> filters{
      {20, 0.95f, 0.0f}, {64, 1.0f, 0.01f},  {0, 0.95f, 0.0f},   {0, 1.0f, 0.01f},
      {900, 1.0f, 0.0f}, {0, 0.95f, 0.001f}, {900, 0.95f, 0.0f}, {8000, 0.95f, 0.001f}};
  const float* const equal = scene.put(std::vector<float>(width, 0.5f));
  // With the most that candidates, their filter and the draw read.
  const std::vector<std::pair<const float*, double>> rows{
      {scene.floats(width), 2.5}, {scene.put(ascending), 3.1}, {scene.put(descending), 3.1},
      {scene.put(masked), 3.1},   {scene.put(half), 4.1},      {equal, 4.1}};
  for (const auto& [row, most] : rows)
    for (const auto& [top_k, top_p, min_p] : filters) {
      const cuda::Logits logits{row, 1, width, 0, width};
      const auto bytes = static_cast<size_t>(cuda::filter_bytes(logits));
      draw.top_k = top_k;
      draw.top_p = top_p;
      draw.min_p = min_p;
      const SamplingRow* const how = scene.put(std::vector<SamplingRow>{draw});
      ReadCounter reads(row, width);
      if (draw.filtered_by_candidates()) {
        cuda::candidates(scene.stream(), logits, listed, 1, parts, list);
        cuda::filter_candidates(scene.stream(), list, 1, logits, listed, 1, how, cut);
      } else {
        cuda::filter_logits(scene.stream(), logits, true, listed, 1, how,
                            {scene.room<std::byte>(static_cast<int>(bytes)), bytes}, cut);
      }
      cuda::best_candidates(scene.stream(), logits, how, cut, of_parts, drawn);
      const bool by_candidates = draw.filtered_by_candidates();
      const double times =
          reads.times_read(by_candidates && row == equal ? 4 : 15);  // the cut is searched by ids
      EXPECT_GT(times, 1.9);
      EXPECT_LT(times, by_candidates ? most : 5.01) << top_k << ' ' << top_p << ' ' << min_p;
    }
}

}  // namespace
}  // namespace maniple
