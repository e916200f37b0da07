// Keys and values kept as e4m3: what is stored, and that attention over codes is attention over their values.
#include <kernels/subjects.hpp>
#include <support/kv_pages.hpp>

#include <numeric>

namespace maniple {
namespace {

using namespace testing;

class Fp8Cache : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Every, Fp8Cache, ::testing::ValuesIn(all_subjects()), name_of_subject);

// The tensor cores of GPUs and the tiles of AMX take the second.
constexpr HeadLayout all_heads[] = {{6, 2, 48}, {6, 2, 64}};
constexpr int64_t block_size = 16, blocks = 48;

// One sequence in blocks from the last to the first, without padding.
struct Sequence {
  Tensor starts, past, seats, table, positions, slots;

  Sequence(Device& device, int32_t past_length, int32_t tokens)
      : starts(int_tensor(device, {0, tokens})),
        past(int_tensor(device, {past_length})),
        seats(int_tensor(device, {0})) {
    std::vector<int32_t> order(blocks), at(static_cast<size_t>(tokens)), places;
    for (int32_t b = 0; b < blocks; ++b) order[static_cast<size_t>(b)] = static_cast<int32_t>(blocks) - 1 - b;
    std::iota(at.begin(), at.end(), past_length);
    for (const int32_t position : at) places.push_back(slot(position));
    table = int_tensor(device, order);
    positions = int_tensor(device, at);
    slots = int_tensor(device, places);
  }
  static int32_t slot(int64_t position) {
    return static_cast<int32_t>((blocks - 1 - position / block_size) * block_size + position % block_size);
  }
  AttentionBatch batch() const {
    return {starts, past, seats, table.view().reshaped({1, blocks}), positions, slots};
  }
};

struct Cache {
  KvLayout layout;
  Tensor bytes, keys, values;

  Cache(Device& device, const HeadLayout& heads, DType dtype)
      : layout{heads.kv_heads, heads.key_dim, block_size, dtype},
        bytes(device, DType::uint8, {blocks, static_cast<int64_t>(layout.block_bytes())}),
        keys(device, dtype, {blocks * block_size, heads.kv_heads, heads.key_dim}),
        values(device, dtype, keys.shape()) {}
  KvPages pages(float key_scale = 1, float value_scale = 1) {
    return {bytes, layout, key_scale, value_scale};
  }
};

Float8 random_code(uint64_t seed, uint64_t i) {
  return Float8(uniform(seed, i) * std::exp2(6 * uniform(seed + 1, i)));
}

// Fills these positions with codes, or with what they stand for; the others with NaN.
void fill(Ops& ops, Cache& cache, IndexRange written, float key_scale, float value_scale) {
  const auto put = [&](Tensor& to, uint64_t seed, float scale) {
    const int64_t width = cache.layout.kv_heads * cache.layout.key_dim;
    for (int64_t i = 0; i < to.shape().elements(); ++i) {
      if (cache.layout.dtype == DType::fp8)
        to.view().as<Float8>()[i].bits = 0x7f;
      else
        set(to, i, std::numeric_limits<float>::quiet_NaN());
    }
    for (int64_t position = written.begin; position < written.end; ++position)
      for (int64_t d = 0; d < width; ++d) {
        const Float8 code = random_code(seed, static_cast<uint64_t>(position * width + d));
        const int64_t at = Sequence::slot(position) * width + d;
        if (cache.layout.dtype == DType::fp8)
          to.view().as<Float8>()[at] = code;
        else
          set(to, at, static_cast<float>(code) * scale);
      }
  };
  put(cache.keys, 1, key_scale);
  put(cache.values, 5, value_scale);
  write_kv(ops, cache.pages(), cache.keys, cache.values);
}

TEST_P(Fp8Cache, AttentionOverCodesIsAttentionOverTheirValues) {
  struct Case {
    HeadLayout heads;
    DType dtype;
    int32_t past, tokens, window;
  };
  std::vector<Case> cases;
  for (const HeadLayout& heads : all_heads)
    for (const DType dtype : activation_types())
      for (const auto& [past, tokens, window] : std::vector<std::array<int32_t, 3>>{{0, 1, 0},
                                                                                    {0, 37, 0},
                                                                                    {299, 1, 0},
                                                                                    {298, 3, 0},
                                                                                    {515, 20, 0},
                                                                                    {0, 37, 9},
                                                                                    {298, 3, 50},
                                                                                    {600, 2, 301}})
        cases.push_back({heads, dtype, past, tokens, window});
  for (const Case& c : cases) {
    const HeadLayout& heads = c.heads;
    const DType dtype = c.dtype;
    const int32_t past = c.past, tokens = c.tokens;
    const Sequence sequence(device(), past, tokens);
    const Tensor queries = random_tensor(device(), dtype, {tokens, heads.query_width()}, 3, 2);
    const auto attended = [&](DType kept, float key_scale, float value_scale) {
      Cache cache(device(), heads, kept);
      const int32_t first = c.window > 0 ? std::max(past + 1 - c.window, 0) : 0;
      fill(ops(), cache, {first, past + tokens}, key_scale, value_scale);
      Tensor out(device(), dtype, queries.shape());
      const bool codes = kept == DType::fp8;
      ops().attention({queries, heads, sequence.batch(),
                       cache.pages(codes ? key_scale : 1, codes ? value_scale : 1), out, 0.14f, c.window});
      return out;
    };
    // Powers of two change no bit of a product.
    EXPECT_TRUE(same_bits(attended(DType::fp8, 0.5f, 0.125f), attended(dtype, 0.5f, 0.125f)))
        << name_of(dtype) << " " << heads.key_dim << ": " << past << " + " << tokens;
    if (dtype != DType::fp32) continue;
    const Tensor scaled = attended(DType::fp8, 0.021f, 0.008f), plain = attended(dtype, 0.021f, 0.008f);
    for (int64_t i = 0; i < scaled.shape().elements(); ++i) ASSERT_NEAR(get(scaled, i), get(plain, i), 1e-6);
  }
}

TEST_P(Fp8Cache, RotaryStoreRoundsWhatAnotherCacheWouldHoldDividedByItsScale) {
  constexpr int32_t past = 13, tokens = 9;
  constexpr float key_scale = 0.0021f, value_scale = 0.0008f;  // some values saturate
  const HeadLayout& heads = all_heads[0];
  for (const DType dtype : activation_types()) {
    Sequence sequence(device(), past, tokens);
    sequence.slots.view().as<int32_t>()[4] = -1;  // stores nothing
    const Tensor qkv = random_tensor(device(), dtype, {tokens, heads.qkv_width()}, 9),
                 norm = random_tensor(device(), DType::fp32, {heads.key_dim}, 8);
    Tensor angles = random_tensor(device(), DType::fp32, {64, heads.key_dim}, 7);
    const auto stored = [&](Cache& cache) {
      fill(ops(), cache, {}, 1, 1);
      Tensor queries(device(), dtype, {tokens, heads.query_width()});
      ops().rotary_store(qkv, heads, {norm, norm, 1e-6f}, angles, sequence.batch(), queries.view(),
                         cache.pages(key_scale, value_scale));
      read_kv(ops(), cache.pages(), cache.keys.view(), cache.values.view());
      return queries;
    };
    Cache codes(device(), heads, DType::fp8), plain(device(), heads, dtype);
    EXPECT_TRUE(same_bits(stored(codes), stored(plain)));
    for (int64_t i = 0; i < plain.keys.shape().elements(); ++i) {
      const float key = get(plain.keys, i), value = get(plain.values, i);
      ASSERT_EQ(codes.keys.view().as<Float8>()[i].bits, std::isnan(key) ? 0x7f : Float8(key / key_scale).bits)
          << i;
      ASSERT_EQ(codes.values.view().as<Float8>()[i].bits,
                std::isnan(value) ? 0x7f : Float8(value / value_scale).bits)
          << i;
    }
    int64_t written = 0;
    for (int64_t i = 0; i < plain.keys.shape().elements(); ++i) written += !std::isnan(get(plain.keys, i));
    EXPECT_EQ(written, (tokens - 1) * heads.kv_width());
  }
}

TEST(KvLayout, KeepsFp8AndTheTypeOfTheActivations) {
  EXPECT_TRUE((KvLayout{2, 48, 16, DType::fp8}.keeps(DType::bf16)));
  EXPECT_TRUE((KvLayout{2, 48, 16, DType::bf16}.keeps(DType::bf16)));
  EXPECT_FALSE((KvLayout{2, 48, 16, DType::fp32}.keeps(DType::bf16)));
}

}  // namespace
}  // namespace maniple
