#include <emulation/device_test.hpp>
#include <kernels/cuda/attention.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace maniple {
namespace {

using testing::data;
using testing::downloaded;
using testing::hashed;
using testing::uniform;

struct Part {
  int past;
  int queries = 1;
};

struct Scene {
  DType dtype = DType::bf16;
  int head_dim = 64;
  int kv_heads = 1;
  int group = 2;
  int block_size = 16;
  int shared_positions = 0;  // of all sequences, whole pages
  float query_scale = 1;
  uint64_t seed = 1;
  bool codes = false;  // a cache of e4m3
};

enum Kind : uint64_t { key = 1, value = 2, query = 3 };

uint16_t rounded(DType dtype, float number) {
  return dtype == DType::bf16 ? BFloat16(number).bits : Float16(number).bits;
}
double widened(DType dtype, uint16_t bits) {
  if (dtype == DType::bf16) return static_cast<double>(static_cast<float>(std::bit_cast<BFloat16>(bits)));
  return static_cast<double>(static_cast<float>(std::bit_cast<Float16>(bits)));
}

// A batch over a cache. Every slot without a token is NaN, as are the outputs.
// Pages and seats are permuted; table entries after a context are invalid.
class Batch {
 public:
  Batch(device::DeviceUnderTest& device, const Scene& scene, const std::vector<Part>& parts)
      : device_(device), scene_(scene), parts_(parts) {
    place_pages();
    fill_cache();
    fill_queries();
    slots_ = uploaded(std::vector<float>(
        static_cast<size_t>(splits_of_room * sequences()) *
            static_cast<size_t>(cuda::decode_slot_floats(scene_.kv_heads * scene_.group, scene_.head_dim)),
        std::numeric_limits<float>::quiet_NaN()));
    counters_ = uploaded(std::vector<int32_t>(
        static_cast<size_t>(cuda::decode_counters(sequences(), scene_.kv_heads * scene_.group))));
  }

  // few_slots: one for each class of splits. Every call takes the same counters.
  std::vector<uint16_t> decode(bool few_slots = false) {
    out_ = uploaded(std::vector<uint16_t>(queries_.size(), nan));
    int slots = few_slots ? 0 : splits_of_room * sequences();
    for (size_t s = 0; few_slots && s < parts_.size(); ++s)
      slots += std::min(static_cast<int>(attention_classes), (context(s) + 255) / 256);
    EXPECT_TRUE(cuda::attention_decode(device_.stream(), arguments(),
                                       {data<float>(slots_), slots, data<int32_t>(counters_)}));
    const std::vector<int32_t> counters = downloaded<int32_t>(device_.memory(), counters_);
    EXPECT_EQ(counters, std::vector<int32_t>(counters.size())) << "counters return to zero";
    return downloaded<uint16_t>(device_.memory(), out_);
  }
  // This owner's partials of a context that several share (AttentionCall). few_slots: one for each of its classes of splits.
  std::vector<float> decode_partials(int owner, int owners, bool few_slots) {
    cuda::AttentionArguments a = arguments();
    const size_t rows = static_cast<size_t>(a.tokens * a.query_heads);
    Tensor partials = uploaded(std::vector<float>(rows * static_cast<size_t>(a.head_dim + 2)));
    a.out = partials.view().data;
    a.owner = owner;
    a.owners = owners;
    a.classes = static_cast<int>(classes_of({owner, owners}));
    EXPECT_TRUE(
        cuda::attention_decode(device_.stream(), a,
                               {data<float>(slots_), sequences() * (few_slots ? a.classes : splits_of_room),
                                data<int32_t>(counters_)}));
    return downloaded<float>(device_.memory(), partials);
  }
  std::vector<uint16_t> prefill() {
    EXPECT_TRUE(cuda::attention_prefill(device_.stream(), arguments()));
    return downloaded<uint16_t>(device_.memory(), out_);
  }

  // Index in out of element i of query t of a sequence.
  size_t row(size_t s, int t, int i = 0) const {
    return static_cast<size_t>((starts_[s] + t) * query_width() + i);
  }
  int query_width() const { return scene_.kv_heads * scene_.group * scene_.head_dim; }

  // Compares rows with double precision: relative error in the L2 norm, by (token, head).
  void expect_exact(const std::vector<uint16_t>& out, double bound) const {
    for (size_t s = 0; s < parts_.size(); ++s)
      for (int t = 0; t < parts_[s].queries && context(s) > 0; ++t)
        for (int h = 0; h < scene_.kv_heads * scene_.group; ++h) {
          const std::vector<double> exact = exact_row(s, t, h);
          double error = 0, norm = 0;
          for (size_t i = 0; i < exact.size(); ++i) {
            const double difference =
                widened(scene_.dtype, out[row(s, t, h * scene_.head_dim) + i]) - exact[i];
            error += difference * difference;
            norm += exact[i] * exact[i];
          }
          ASSERT_LE(std::sqrt(error / norm), bound)
              << "past " << parts_[s].past << ", query " << t << ", head " << h << ", head size "
              << scene_.head_dim << ", group " << scene_.group << ", page " << scene_.block_size;
        }
  }

 private:
  static constexpr uint16_t nan = 0x7fff;  // of both types
  static constexpr int splits_of_room = 8;

  cuda::AttentionArguments arguments() {
    return {scene_.dtype,
            query_tensor_.view().data,
            out_.view().data,
            keys_.view().data,
            values_.view().data,
            data<int32_t>(starts_tensor_),
            data<int32_t>(past_),
            data<int32_t>(seats_tensor_),
            data<int32_t>(tables_tensor_),
            width_,
            sequences(),
            starts_.back(),
            scene_.kv_heads * scene_.group,
            scene_.kv_heads,
            scene_.head_dim,
            scene_.block_size,
            scale_of(key) / std::sqrt(static_cast<float>(scene_.head_dim)),
            0,
            1,
            8,
            scene_.codes,
            scale_of(value)};
  }
  template <typename T>
  Tensor uploaded(const std::vector<T>& numbers) {
    return testing::uploaded(device_.memory(), numbers);
  }

  int sequences() const { return static_cast<int>(parts_.size()); }
  int context(size_t s) const { return parts_[s].past + parts_[s].queries; }
  int pages_of(size_t s) const { return (context(s) + scene_.block_size - 1) / scene_.block_size; }

  float number(Kind kind, size_t s, int position, int i) const {
    const uint64_t owner = kind != query && position < scene_.shared_positions ? 99 : s;
    return uniform(hashed(scene_.seed * 16 + kind) + owner,
                   static_cast<uint64_t>(position) * 8192 + static_cast<uint64_t>(i));
  }
  uint16_t bits(Kind kind, size_t s, int position, int i) const {
    return rounded(scene_.dtype, number(kind, s, position, i));
  }

  // Some codes are subnormal, none saturates.
  float scale_of(Kind kind) const { return !scene_.codes ? 1 : kind == key ? 0.0131f : 0.0047f; }
  Float8 code(Kind kind, size_t s, int position, int i) const {
    return Float8(number(kind, s, position, i) / scale_of(kind));
  }
  double cached(Kind kind, size_t s, int position, int i) const {
    if (!scene_.codes) return widened(scene_.dtype, bits(kind, s, position, i));
    return static_cast<double>(static_cast<float>(code(kind, s, position, i))) *
           static_cast<double>(scale_of(kind));
  }

  void place_pages() {
    std::mt19937 random(static_cast<uint32_t>(scene_.seed));
    seats_.resize(parts_.size());
    std::iota(seats_.begin(), seats_.end(), 1);
    std::shuffle(seats_.begin(), seats_.end(), random);
    for (size_t s = 0; s < parts_.size(); ++s) {
      pages_ += pages_of(s);
      width_ = std::max(width_, pages_of(s) + 1);
    }
    std::vector<int32_t> free(static_cast<size_t>(pages_));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    tables_.assign((parts_.size() + 1) * static_cast<size_t>(width_), 0x3fffffff);
    for (size_t s = 0; s < parts_.size(); ++s)
      for (int p = 0; p < pages_of(s); ++p) {
        const bool shared =
            s > 0 && (p + 1) * scene_.block_size <= scene_.shared_positions && p < pages_of(0);
        page(s, p) = shared ? page(0, p) : free.back();
        if (!shared) free.pop_back();
      }
    seats_tensor_ = uploaded(seats_);
    tables_tensor_ = uploaded(tables_);
  }
  int32_t& page(size_t s, int index) { return tables_[static_cast<size_t>(seats_[s] * width_ + index)]; }

  template <typename Kept, typename F>
  void fill_cache(Kept unwritten, F kept) {
    std::vector<Kept> keys(
        static_cast<size_t>(pages_ * scene_.kv_heads * scene_.block_size * scene_.head_dim), unwritten),
        values = keys;
    for (size_t s = 0; s < parts_.size(); ++s)
      for (int p = 0; p < context(s); ++p)
        for (int i = 0; i < scene_.kv_heads * scene_.head_dim; ++i) {
          keys[element(s, p, i)] = kept(key, s, p, i);
          values[element(s, p, i)] = kept(value, s, p, i);
        }
    keys_ = uploaded(keys);
    values_ = uploaded(values);
  }
  void fill_cache() {
    if (scene_.codes)
      fill_cache(uint8_t{0x7f}, [&](auto... place) { return code(place...).bits; });
    else
      fill_cache(nan, [&](auto... place) { return bits(place...); });
  }
  // Index in the cache; i counts over the heads of a token.
  size_t element(size_t s, int position, int i) {
    const int head = i / scene_.head_dim, block = page(s, position / scene_.block_size);
    return static_cast<size_t>(
        ((block * scene_.kv_heads + head) * scene_.block_size + position % scene_.block_size) *
            scene_.head_dim +
        i % scene_.head_dim);
  }

  void fill_queries() {
    std::vector<int32_t> past;
    for (size_t s = 0; s < parts_.size(); ++s) {
      starts_.push_back(starts_.back() + parts_[s].queries);
      past.push_back(parts_[s].past);
      for (int t = 0; t < parts_[s].queries; ++t)
        for (int i = 0; i < query_width(); ++i)
          queries_.push_back(
              rounded(scene_.dtype, scene_.query_scale * number(query, s, parts_[s].past + t, i)));
    }
    starts_tensor_ = uploaded(starts_);
    past_ = uploaded(past);
    query_tensor_ = uploaded(queries_);
    out_ = uploaded(std::vector<uint16_t>(queries_.size(), nan));
  }

  std::vector<double> exact_row(size_t s, int t, int head) const {
    const int dims = scene_.head_dim, kv = head / scene_.group * dims, length = parts_[s].past + t + 1;
    std::vector<double> scores, out(static_cast<size_t>(dims));
    for (int p = 0; p < length; ++p) {
      double score = 0;
      for (int i = 0; i < dims; ++i)
        score += widened(scene_.dtype, queries_[row(s, t, head * dims + i)]) * cached(key, s, p, kv + i);
      scores.push_back(score / std::sqrt(static_cast<double>(dims)));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (int p = 0; p < length; ++p) {
      const double weight = std::exp(scores[static_cast<size_t>(p)] - largest);
      total += weight;
      for (int i = 0; i < dims; ++i) out[static_cast<size_t>(i)] += weight * cached(value, s, p, kv + i);
    }
    for (double& x : out) x /= total;
    return out;
  }

  device::DeviceUnderTest& device_;
  Scene scene_;
  std::vector<Part> parts_;
  int width_ = 1, pages_ = 1;
  std::vector<int32_t> seats_, tables_, starts_{0};
  std::vector<uint16_t> queries_;
  Tensor keys_, values_, query_tensor_, out_;
  Tensor starts_tensor_, past_, seats_tensor_, tables_tensor_, slots_, counters_;
};

// Weights and results are rounded to the type: errors of half a unit in the last place each, relative to the
// sum of the absolute terms. This sum is a few times the result.
double bound_of(DType dtype) { return dtype == DType::bf16 ? 0x1p-7 : 0x1p-10; }

class AttentionDecode : public testing::DeviceTest {
 protected:
  void expect_exact(const Scene& scene, const std::vector<Part>& parts) {
    Batch batch(device(), scene, parts);
    batch.expect_exact(batch.decode(), bound_of(scene.dtype));
  }
};
INSTANTIATE_TEST_SUITE_P(Orders, AttentionDecode, ::testing::Range(uint64_t{0}, uint64_t{4}));

const std::vector<Part> contexts{{0}, {1}, {254}, {255}, {256}, {510}, {511}, {512}, {999}};

TEST_P(AttentionDecode, AgreesWithDoublePrecisionForEveryHeadSizeAndType) {
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (const int head_dim : {16, 32, 64, 96, 128, 256})
      for (const bool codes : {false, true})
        expect_exact({.dtype = dtype, .head_dim = head_dim, .seed = GetParam(), .codes = codes},
                     head_dim < 128 ? contexts : std::vector<Part>{{0}, {254}, {512}, {300}});
}

TEST_P(AttentionDecode, AgreesWithDoublePrecisionForEveryGroupAndPageSize) {
  for (const int group : {1, 2, 3, 4, 7, 8, 16, 17, 40})
    for (const int block_size : {16, 32, 64, 128, 256})
      if ((group + block_size / 16 + static_cast<int>(GetParam())) % 3 == 0)
        expect_exact({.head_dim = 32,
                      .kv_heads = 2,
                      .group = group,
                      .block_size = block_size,
                      .shared_positions = 256,
                      .seed = GetParam(),
                      .codes = group % 2 == 0},
                     {{15}, {256}, {300}, {511}, {0}});
}

TEST_P(AttentionDecode, SurvivesScoresThatOverflowAnExponential) {
  Batch batch(device(), {.query_scale = 2000, .seed = GetParam()}, {{40}, {520}});
  for (const uint16_t bits : batch.decode()) ASSERT_LE(std::abs(widened(DType::bf16, bits)), 1.01);
}

TEST_P(AttentionDecode, LeavesPaddingAndSequencesOfSeveralQueriesAlone) {
  Batch batch(device(), {.seed = GetParam()}, {{-1}, {300, 3}, {70}, {-1}, {600}, {0, 2}, {-1}});
  const std::vector<uint16_t> out = batch.decode();
  const std::vector<bool> written{false, false, true, false, true, false, false};
  const std::vector<int> queries{1, 3, 1, 1, 1, 2, 1};
  for (size_t s = 0; s < written.size(); ++s)
    for (int t = 0; t < queries[s]; ++t)
      for (int i = 0; i < batch.query_width(); ++i)
        ASSERT_EQ(!std::isnan(widened(DType::bf16, out[batch.row(s, t, i)])), written[s]) << s;
}

TEST_P(AttentionDecode, ARowHasTheSameBitsInAnyCompanyOrderAndPageSizeAndWithFewSlots) {
  Scene scene{.head_dim = 64, .kv_heads = 2, .group = 3, .seed = 5};
  std::vector<Part> parts = contexts;
  parts.insert(parts.end(), {{2303}, {4400}});  // more splits than classes
  const std::vector<uint16_t> expected = Batch(device(), scene, parts).decode();
  scene.block_size = 128;
  Batch again(device(), scene, parts);
  EXPECT_EQ(again.decode(), expected);
  EXPECT_EQ(again.decode(true), expected);
  again.expect_exact(expected, bound_of(scene.dtype));
  for (size_t count = 1; count < parts.size(); ++count) {
    const std::vector<uint16_t> fewer =
        Batch(device(), scene, {parts.begin(), parts.begin() + static_cast<long>(count)}).decode();
    EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), expected.begin()));
  }
}

// A part more and less than blocks that run at once, five under emulation; one long context among short ones and padding, with more
// parts than a GPU runs blocks of this head size.
TEST_P(AttentionDecode, FreeBlocksDrawTheOtherPartsInEveryLaunch) {
  Scene scene{.head_dim = 128, .group = 4, .seed = GetParam() + 9, .codes = GetParam() % 2 == 1};
  std::vector<Part> parts{{30}, {255}, {0}, {100}, {17}, {200}, {-1}, {1900}};
  const auto decoded = [&](size_t count) {
    return Batch(device(), scene, {parts.begin(), parts.begin() + static_cast<long>(count)}).decode();
  };
  const std::vector<uint16_t> expected = decoded(parts.size());
  for (const size_t count : {4, 5, 6}) {
    const std::vector<uint16_t> fewer = decoded(count);
    EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), expected.begin())) << count;
  }
  for (int i = 0; i < 56; ++i) parts.push_back({i % 9 == 3 ? -1 : i * 97 % 60});
  scene.head_dim = 64;
  scene.kv_heads = 8;
  Batch many(device(), scene, parts);
  const std::vector<uint16_t> first = many.decode();
  many.expect_exact(first, bound_of(scene.dtype));
  for (const bool few_slots : {true, false}) EXPECT_EQ(many.decode(few_slots), first);
}

// Splits of one owner: 18, 9, 5, 3, 2 of the longest context. With eight owners they are a single class.
TEST_P(AttentionDecode, PartialsOfASharedContextHaveTheSameBitsWithFewSlots) {
  for (const int owners : {2, 4, 8, 16})
    for (const int owner : {0, owners / 2}) {
      Batch batch(device(), {.head_dim = 32, .group = 16, .block_size = 256, .seed = GetParam()},
                  {{4400}, {700}, {3}, {2047}});
      const std::vector<float> expected = batch.decode_partials(owner, owners, false);
      EXPECT_TRUE(std::ranges::none_of(expected, [](float value) { return std::isnan(value); }));
      EXPECT_EQ(batch.decode_partials(owner, owners, true), expected) << owners;
    }
}

class AttentionPrefill : public testing::DeviceTest {
 protected:
  void expect_exact(const Scene& scene, const std::vector<Part>& parts) {
    Batch batch(device(), scene, parts);
    batch.expect_exact(batch.prefill(), bound_of(scene.dtype));
  }
};
INSTANTIATE_TEST_SUITE_P(Orders, AttentionPrefill, ::testing::Range(uint64_t{0}, uint64_t{4}));

TEST_P(AttentionPrefill, AgreesWithDoublePrecisionForEveryHeadSizeAndType) {
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (const int head_dim : {16, 32, 64, 96, 128, 256})
      for (const bool codes : {false, true})
        expect_exact({.dtype = dtype, .head_dim = head_dim, .seed = GetParam(), .codes = codes},
                     {{0, 2}, {63, 3}, {0, 65}, {255, 2}, {130, 70}});
}

TEST_P(AttentionPrefill, AgreesWithDoublePrecisionForEveryGroupAndPageSize) {
  for (const int group : {1, 2, 3, 4, 7, 8, 16, 17})
    for (const int block_size : {16, 32, 64, 128, 256})
      if ((group + block_size / 16 + static_cast<int>(GetParam())) % 4 == 0)
        expect_exact({.head_dim = 32,
                      .kv_heads = 2,
                      .group = group,
                      .block_size = block_size,
                      .shared_positions = 256,
                      .seed = GetParam(),
                      .codes = group % 2 == 0},
                     {{0, 33}, {256, 5}, {300, 2}, {190, 67}});
}

TEST_P(AttentionPrefill, SurvivesScoresThatOverflowAnExponential) {
  Batch batch(device(), {.query_scale = 2000, .seed = GetParam()}, {{0, 40}, {120, 2}});
  for (const uint16_t bits : batch.prefill()) ASSERT_LE(std::abs(widened(DType::bf16, bits)), 1.01);
}

TEST_P(AttentionPrefill, LeavesPaddingAndSequencesOfOneQueryAlone) {
  Batch batch(device(), {.seed = GetParam()}, {{-1}, {30, 3}, {70}, {0, 130}, {0}, {-1}});
  const std::vector<uint16_t> out = batch.prefill();
  const std::vector<int> queries{1, 3, 1, 130, 1, 1};
  for (size_t s = 0; s < queries.size(); ++s)
    for (int t = 0; t < queries[s]; ++t)
      for (int i = 0; i < batch.query_width(); ++i)
        ASSERT_EQ(!std::isnan(widened(DType::bf16, out[batch.row(s, t, i)])), queries[s] > 1) << s;
}

TEST_P(AttentionPrefill, ARowHasTheSameBitsInAnyChunkCompanyOrderAndPageSize) {
  Scene scene{.head_dim = 64, .kv_heads = 2, .group = 3, .seed = 5};
  Batch whole(device(), scene, {{0, 200}});
  const std::vector<uint16_t> expected = whole.prefill();
  scene.block_size = 256;
  for (const Part part : {Part{0, 200}, {0, 70}, {1, 64}, {63, 2}, {127, 73}}) {
    Batch batch(device(), scene, {part, {17, 90}, {5}});
    const std::vector<uint16_t> out = batch.prefill();
    const auto row = expected.begin() + part.past * whole.query_width();
    EXPECT_TRUE(std::equal(row, row + part.queries * whole.query_width(), out.begin()));
  }
}

}  // namespace
}  // namespace maniple
