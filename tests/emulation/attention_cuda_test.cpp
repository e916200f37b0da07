#include <kernels/cuda/attention_decode.hpp>
#include <kernels/cuda/attention_prefill.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace maniple {
namespace {

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
};

enum Kind : uint64_t { key = 1, value = 2, query = 3 };

uint16_t rounded(DType dtype, float number) {
  return dtype == DType::bf16 ? BFloat16(number).bits : Float16(number).bits;
}
double widened(DType dtype, uint16_t bits) {
  if (dtype == DType::bf16) return static_cast<float>(std::bit_cast<BFloat16>(bits));
  return static_cast<float>(std::bit_cast<Float16>(bits));
}

// A batch over a cache whose every slot without a token is NaN, as are the outputs. Pages and seats are
// permuted, table entries behind a context point nowhere.
class Batch {
 public:
  Batch(const Scene& scene, const std::vector<Part>& parts) : scene_(scene), parts_(parts) {
    width_ = 1;
    for (const Part& part : parts) width_ = std::max(width_, pages_of(part) + 1);
    place_pages();
    for (size_t s = 0; s < parts.size(); ++s)
      for (int p = 0; p < context(s); ++p)
        for (int i = 0; i < scene.kv_heads * scene.head_dim; ++i) {
          keys_[element(s, p, i)] = bits(key, s, p, i);
          values_[element(s, p, i)] = bits(value, s, p, i);
        }
    starts_.push_back(0);
    for (size_t s = 0; s < parts.size(); ++s) {
      starts_.push_back(starts_.back() + parts[s].queries);
      past_.push_back(parts[s].past);
      for (int t = 0; t < parts[s].queries; ++t)
        for (int i = 0; i < query_width(); ++i)
          queries_.push_back(
              rounded(scene.dtype, scene.query_scale * number(query, s, parts[s].past + t, i)));
    }
    out_.assign(queries_.size(), nan);
    slots_.assign(
        static_cast<size_t>(parts.size()) * 64 * static_cast<size_t>(cuda::decode_slot_floats(arguments())),
        std::numeric_limits<float>::quiet_NaN());
    arrivals_.assign(static_cast<size_t>(cuda::decode_arrivals(arguments())), 0);
  }

  cuda::AttentionArguments arguments() {
    return {scene_.dtype,
            queries_.data(),
            out_.data(),
            keys_.data(),
            values_.data(),
            starts_.data(),
            past_.data(),
            seats_.data(),
            tables_.data(),
            width_,
            static_cast<int>(parts_.size()),
            starts_.back(),
            scene_.kv_heads * scene_.group,
            scene_.kv_heads,
            scene_.head_dim,
            scene_.block_size,
            1 / std::sqrt(static_cast<float>(scene_.head_dim))};
  }

  std::vector<uint16_t> decode(emulation::Order& order, int slots = 0) {
    if (slots == 0) slots = static_cast<int>(parts_.size()) * 64;
    EXPECT_TRUE(cuda::attention_decode(&order, arguments(), {slots_.data(), slots, arrivals_.data()}));
    EXPECT_EQ(arrivals_, std::vector<int32_t>(arrivals_.size())) << "arrivals are counted back to zero";
    return std::exchange(out_, std::vector<uint16_t>(out_.size(), nan));
  }

  std::vector<uint16_t> prefill(emulation::Order& order) {
    EXPECT_TRUE(cuda::attention_prefill(&order, arguments()));
    return std::exchange(out_, std::vector<uint16_t>(out_.size(), nan));
  }

  // Element i of query t of a sequence in out.
  size_t row(size_t s, int t, int i = 0) const {
    return static_cast<size_t>((starts_[s] + t) * query_width() + i);
  }
  int query_width() const { return scene_.kv_heads * scene_.group * scene_.head_dim; }

  // Rows against double precision: relative error in the L2 norm, by (token, head).
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

  int context(size_t s) const { return parts_[s].past + parts_[s].queries; }
  int pages_of(const Part& part) const {
    return (part.past + part.queries + scene_.block_size - 1) / scene_.block_size;
  }

  float number(Kind kind, size_t s, int position, int i) const {
    const uint64_t owner = kind != query && position < scene_.shared_positions ? 99 : s;
    return uniform(hashed(scene_.seed * 16 + kind) + owner,
                   static_cast<uint64_t>(position) * 8192 + static_cast<uint64_t>(i));
  }
  uint16_t bits(Kind kind, size_t s, int position, int i) const {
    return rounded(scene_.dtype, number(kind, s, position, i));
  }

  void place_pages() {
    std::mt19937 random(static_cast<uint32_t>(scene_.seed));
    seats_.resize(parts_.size());
    std::iota(seats_.begin(), seats_.end(), 1);
    std::shuffle(seats_.begin(), seats_.end(), random);
    int pages = 1;
    for (const Part& part : parts_) pages += pages_of(part);
    std::vector<int32_t> free(static_cast<size_t>(pages));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    tables_.assign((parts_.size() + 1) * static_cast<size_t>(width_), 0x3fffffff);
    for (size_t s = 0; s < parts_.size(); ++s)
      for (int p = 0; p < pages_of(parts_[s]); ++p) {
        const bool shared =
            s > 0 && (p + 1) * scene_.block_size <= scene_.shared_positions && p < pages_of(parts_[0]);
        page(s, p) = shared ? page(0, p) : free.back();
        if (!shared) free.pop_back();
      }
    const size_t elements = static_cast<size_t>(pages) *
                            static_cast<size_t>(scene_.kv_heads * scene_.block_size * scene_.head_dim);
    keys_.assign(elements, nan);
    values_.assign(elements, nan);
  }
  int32_t& page(size_t s, int index) { return tables_[static_cast<size_t>(seats_[s] * width_ + index)]; }
  // Of the cache; i counts over the heads of a token.
  size_t element(size_t s, int position, int i) {
    const int head = i / scene_.head_dim, block = page(s, position / scene_.block_size);
    return static_cast<size_t>(
        ((block * scene_.kv_heads + head) * scene_.block_size + position % scene_.block_size) *
            scene_.head_dim +
        i % scene_.head_dim);
  }

  std::vector<double> exact_row(size_t s, int t, int head) const {
    const int dims = scene_.head_dim, kv = head / scene_.group * dims, length = parts_[s].past + t + 1;
    std::vector<double> scores, out(static_cast<size_t>(dims));
    for (int p = 0; p < length; ++p) {
      double score = 0;
      for (int i = 0; i < dims; ++i)
        score += widened(scene_.dtype, queries_[row(s, t, head * dims + i)]) *
                 widened(scene_.dtype, bits(key, s, p, kv + i));
      scores.push_back(score / std::sqrt(static_cast<double>(dims)));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (int p = 0; p < length; ++p) {
      const double weight = std::exp(scores[static_cast<size_t>(p)] - largest);
      total += weight;
      for (int i = 0; i < dims; ++i)
        out[static_cast<size_t>(i)] += weight * widened(scene_.dtype, bits(value, s, p, kv + i));
    }
    for (double& x : out) x /= total;
    return out;
  }

  Scene scene_;
  std::vector<Part> parts_;
  int width_;
  std::vector<int32_t> seats_, tables_, starts_, past_, arrivals_;
  std::vector<uint16_t> keys_, values_, queries_, out_;
  std::vector<float> slots_;
};

// Weights and results are rounded to the type: errors of half a unit in the last place each, relative to the
// sum of the absolute terms, which are some times the result.
double bound_of(DType dtype) { return dtype == DType::bf16 ? 0x1p-7 : 0x1p-10; }

class AttentionDecode : public ::testing::TestWithParam<uint64_t> {
 protected:
  emulation::Order order_{GetParam()};

  void expect_exact(const Scene& scene, const std::vector<Part>& parts) {
    Batch batch(scene, parts);
    batch.expect_exact(batch.decode(order_), bound_of(scene.dtype));
  }
};
INSTANTIATE_TEST_SUITE_P(Orders, AttentionDecode, ::testing::Range(uint64_t{0}, uint64_t{4}));

const std::vector<Part> contexts{{0}, {1}, {254}, {255}, {256}, {510}, {511}, {512}, {999}};

TEST_P(AttentionDecode, AgreesWithDoublePrecisionForEveryHeadSizeAndType) {
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (const int head_dim : {16, 32, 64, 96, 128, 256})
      expect_exact({.dtype = dtype, .head_dim = head_dim, .seed = GetParam()},
                   head_dim < 128 ? contexts : std::vector<Part>{{0}, {254}, {512}});
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
                      .seed = GetParam()},
                     {{15}, {256}, {300}, {511}, {0}});
}

TEST_P(AttentionDecode, SurvivesScoresThatOverflowAnExponential) {
  Batch batch({.query_scale = 2000, .seed = GetParam()}, {{40}, {520}});
  for (const uint16_t bits : batch.decode(order_)) ASSERT_LE(std::abs(widened(DType::bf16, bits)), 1.01);
}

TEST_P(AttentionDecode, LeavesPaddingAndSequencesOfSeveralQueriesAlone) {
  Batch batch({.seed = GetParam()}, {{-1}, {300, 3}, {70}, {-1}, {600}, {0, 2}, {-1}});
  const std::vector<uint16_t> out = batch.decode(order_);
  const std::vector<bool> written{false, false, true, false, true, false, false};
  const std::vector<int> queries{1, 3, 1, 1, 1, 2, 1};
  for (size_t s = 0; s < written.size(); ++s)
    for (int t = 0; t < queries[s]; ++t)
      for (int i = 0; i < batch.query_width(); ++i)
        ASSERT_EQ(!std::isnan(widened(DType::bf16, out[batch.row(s, t, i)])), written[s]) << s;
}

TEST_P(AttentionDecode, ARowHasTheSameBitsInAnyCompanyOrderAndPageSizeAndWithFewSlots) {
  Scene scene{.head_dim = 64, .kv_heads = 2, .group = 3, .seed = 5};
  const std::vector<uint16_t> expected = Batch(scene, contexts).decode(order_);
  scene.block_size = 128;
  EXPECT_EQ(Batch(scene, contexts).decode(order_), expected);
  Batch crowded(scene, contexts);
  EXPECT_EQ(crowded.decode(order_, static_cast<int>(contexts.size())), expected);
  for (size_t count = 1; count < contexts.size(); ++count) {
    const std::vector<uint16_t> fewer =
        Batch(scene, {contexts.begin(), contexts.begin() + static_cast<long>(count)}).decode(order_);
    EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), expected.begin()));
  }
  emulation::Order other{GetParam() + 1};
  EXPECT_EQ(Batch(scene, contexts).decode(other), expected);
}

class AttentionPrefill : public ::testing::TestWithParam<uint64_t> {
 protected:
  emulation::Order order_{GetParam()};

  void expect_exact(const Scene& scene, const std::vector<Part>& parts) {
    Batch batch(scene, parts);
    batch.expect_exact(batch.prefill(order_), bound_of(scene.dtype));
  }
};
INSTANTIATE_TEST_SUITE_P(Orders, AttentionPrefill, ::testing::Range(uint64_t{0}, uint64_t{4}));

TEST_P(AttentionPrefill, AgreesWithDoublePrecisionForEveryHeadSizeAndType) {
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (const int head_dim : {16, 32, 64, 96, 128, 256})
      expect_exact({.dtype = dtype, .head_dim = head_dim, .seed = GetParam()},
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
                      .seed = GetParam()},
                     {{0, 33}, {256, 5}, {300, 2}, {190, 67}});
}

TEST_P(AttentionPrefill, SurvivesScoresThatOverflowAnExponential) {
  Batch batch({.query_scale = 2000, .seed = GetParam()}, {{0, 40}, {120, 2}});
  for (const uint16_t bits : batch.prefill(order_)) ASSERT_LE(std::abs(widened(DType::bf16, bits)), 1.01);
}

TEST_P(AttentionPrefill, LeavesPaddingAndSequencesOfOneQueryAlone) {
  Batch batch({.seed = GetParam()}, {{-1}, {30, 3}, {70}, {0, 130}, {0}, {-1}});
  const std::vector<uint16_t> out = batch.prefill(order_);
  const std::vector<int> queries{1, 3, 1, 130, 1, 1};
  for (size_t s = 0; s < queries.size(); ++s)
    for (int t = 0; t < queries[s]; ++t)
      for (int i = 0; i < batch.query_width(); ++i)
        ASSERT_EQ(!std::isnan(widened(DType::bf16, out[batch.row(s, t, i)])), queries[s] > 1) << s;
}

TEST_P(AttentionPrefill, ARowHasTheSameBitsInAnyChunkCompanyOrderAndPageSize) {
  Scene scene{.head_dim = 64, .kv_heads = 2, .group = 3, .seed = 5};
  Batch whole(scene, {{0, 200}});
  const std::vector<uint16_t> expected = whole.prefill(order_);
  scene.block_size = 256;
  for (const Part part : {Part{0, 200}, {0, 70}, {1, 64}, {63, 2}, {127, 73}}) {
    Batch batch(scene, {part, {17, 90}, {5}});
    const std::vector<uint16_t> out = batch.prefill(order_);
    const auto row = expected.begin() + part.past * whole.query_width();
    EXPECT_TRUE(std::equal(row, row + part.queries * whole.query_width(), out.begin()));
  }
}

}  // namespace
}  // namespace maniple
