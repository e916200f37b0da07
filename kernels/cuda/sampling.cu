#include <kernels/cuda/reductions.hpp>
#include <kernels/cuda/sampling.hpp>
#include <kernels/reference/noise.hpp>

#include <algorithm>
#include <climits>
#include <cmath>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int max_threads = 512;
constexpr int max_warps = max_threads / 32;

int threads_for(int items) { return std::clamp((items + 31) / 32 * 32, 32, max_threads); }

// NaN never wins. -0 becomes +0, because equal logits must have equal keys.
__device__ float nan_to_lowest(float logit) { return std::isnan(logit) ? -INFINITY : logit + 0.0f; }
// logit - maximum; the difference of equal infinities is 0.
__device__ float distance(float logit, float maximum) { return logit == maximum ? 0.0f : logit - maximum; }

// The score of each token of a row.
class Scorer {
 public:
  __device__ explicit Scorer(const SamplingRow& row)
      : temperature_(row.temperature), key_(noise_key(row.seed, row.position)) {}
  __device__ Candidate operator()(int32_t id, float logit) const {
    if (temperature_ <= 0) return {logit, id, logit};
    const float noise = -logf(-log1pf(-noise_uniform(key_, static_cast<uint32_t>(id))));
    return {logit / temperature_ + noise, id, logit};
  }

 private:
  float temperature_;
  NoiseKey key_;
};

__device__ Candidate no_candidate() { return {-INFINITY, INT_MAX, -INFINITY}; }
__device__ Candidate not_finite() { return {INFINITY, -1, 0}; }  // no_token
__device__ Candidate better(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id) ? a : b;
}
__device__ float larger(float a, float b) { return a > b ? a : b; }

// --- shards ---

// Block (part, row) takes columns [begin, end) of the row.
struct Part {
  int begin, end;
};
__device__ Part part_of(int count) {
  const int size = (count + grid_size().x - 1) / grid_size().x, begin = block_index().x * size;
  return {begin, begin + size < count ? begin + size : count};
}

__global__ void __launch_bounds__(max_threads)
    best_of_part(ShardLogits logits, const SamplingRow* how, Candidate* out) {
  const int row = block_index().y;
  const float* const values = logits.logits + static_cast<int64_t>(row) * logits.width;
  const Scorer score(how[row]);
  Candidate best = no_candidate();
  const Part part = part_of(logits.count);
  for (int i = part.begin + thread_index(); i < part.end; i += block_threads())
    best = better(best, std::isfinite(values[i]) ? score(logits.first + i, values[i] + 0.0f) : not_finite());
  best = block_reduce(best, reinterpret_cast<Candidate*>(shared_memory()), better);
  if (thread_index() == 0) out[row * grid_size().x + block_index().x] = best;
}

// One warp per row.
__global__ void __launch_bounds__(32) best_of_partial(const Candidate* partial, int parts, Candidate* out) {
  const int row = block_index().x;
  Candidate best = no_candidate();
  for (int i = lane_index(); i < parts; i += 32) best = better(best, partial[row * parts + i]);
  best = warp_reduce(best, better);
  if (lane_index() == 0) out[row] = best;
}

__global__ void __launch_bounds__(max_threads) maximum_of_row(ShardLogits logits, float* maxima) {
  const int row = block_index().x;
  const float* const values = logits.logits + static_cast<int64_t>(row) * logits.width;
  float maximum = -INFINITY;
  for (int i = thread_index(); i < logits.count; i += block_threads())
    maximum = larger(maximum, nan_to_lowest(values[i]));
  maximum = block_reduce(maximum, reinterpret_cast<float*>(shared_memory()), larger);
  if (thread_index() == 0) maxima[row] = maximum;
}

// The chunk's width alone decides the number of threads, and so the order of the sum.
__global__ void __launch_bounds__(max_threads)
    exp_sum_of_chunk(ShardLogits logits, const float* maxima, int shards, float* sums) {
  const int row = block_index().y, size = logits.width / grid_size().x, begin = block_index().x * size;
  const float* const values = logits.logits + static_cast<int64_t>(row) * logits.width;
  float maximum = maxima[row];
  for (int shard = 1; shard < shards; ++shard) maximum = larger(maximum, maxima[shard * logits.rows + row]);
  float sum = 0;
  for (int i = begin + thread_index(); i < begin + size && i < logits.count; i += block_threads())
    sum += expf(distance(nan_to_lowest(values[i]), maximum));
  sum = block_sum(sum, reinterpret_cast<float*>(shared_memory()));
  if (thread_index() == 0) sums[row * grid_size().x + block_index().x] = sum;
}

// --- whole vocabularies ---

// The order of (logit descending, id ascending) as descending keys: 32 bits that order as the logit does,
// then 24 bits of the id's complement. No two entries have the same key.
constexpr int id_bits = 24;
constexpr int key_bits = 32 + id_bits;
__device__ uint64_t key_of(float logit, int id) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, logit);
  const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << id_bits | (0xffffffu - static_cast<uint32_t>(id));
}
__device__ int id_of(uint64_t key) {
  return static_cast<int>(0xffffffu - static_cast<uint32_t>(key & 0xffffffu));
}
__device__ float logit_of(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> id_bits);
  return __builtin_bit_cast(float, ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

// Most logits share a few first digits, and additions to one
// address serialise: lanes spread over copies of the bins.
constexpr int bin_copies = 16;

struct FilterScratch {
  unsigned long long bins[256][bin_copies];
  unsigned long long totals[256];
  unsigned long long sums[max_warps];
  Candidate candidates[max_warps];
  float maxima[max_warps];
  uint64_t chosen;             // prefix of a key
  unsigned long long reached;  // sum of what lies above
};

// One row of gathered logits, read by a block.
class GatheredRow {
 public:
  __device__ GatheredRow(const GatheredLogits& logits, int row, FilterScratch& scratch)
      : logits_(logits),
        first_(logits.logits + static_cast<int64_t>(row) * logits.width),
        scratch_(scratch) {}

  // Calls f(id, logit) for each entry, by all threads of the block.
  template <typename F>
  __device__ void for_each(F f) const {
    const float* shard = first_;
    for (int first = 0; first < logits_.vocabulary; first += logits_.width) {
      const int left = logits_.vocabulary - first, count = left < logits_.width ? left : logits_.width;
      for (int i = thread_index(); i < count; i += block_threads()) f(first + i, nan_to_lowest(shard[i]));
      shard += static_cast<int64_t>(logits_.rows) * logits_.width;
    }
  }

  __device__ float maximum() const {
    float found = -INFINITY;
    for_each([&](int, float logit) { found = larger(found, logit); });
    return block_reduce(found, scratch_.maxima, larger);
  }

  template <typename Weight>
  __device__ unsigned long long sum(Weight weight) const {
    unsigned long long found = 0;
    for_each([&](int id, float logit) { found += weight(id, logit); });
    return block_reduce(found, scratch_.sums,
                        [](unsigned long long a, unsigned long long b) { return a + b; });
  }

  // The key of the entry at which the sum of weights, in the order of the keys, first reaches `wanted` (above
  // 0, at most the sum of all). A radix descent: each pass adds the weights of the entries that share the
  // digits found so far by their next digit. Integer sums do not depend on the order of threads.
  template <typename Weight>
  __device__ uint64_t key_where_sum_reaches(double wanted, Weight weight) const {
    if (thread_index() == 0) {
      scratch_.chosen = 0;
      scratch_.reached = 0;
    }
    for (int shift = key_bits - 8; shift >= 0; shift -= 8) {
      for (int i = thread_index(); i < 256 * bin_copies; i += block_threads())
        scratch_.bins[i / bin_copies][i % bin_copies] = 0;
      synchronize_block();
      const uint64_t prefix = scratch_.chosen;
      for_each([&](int id, float logit) {
        const uint64_t digits = key_of(logit, id) >> shift;
        if (digits >> 8 != prefix) return;
        if (const unsigned long long share = weight(id, logit))
          atomic_add(&scratch_.bins[digits & 255][thread_index() % bin_copies], share);
      });
      synchronize_block();
      for (int bin = thread_index(); bin < 256; bin += block_threads()) {
        scratch_.totals[bin] = 0;
        for (const unsigned long long part : scratch_.bins[bin]) scratch_.totals[bin] += part;
      }
      synchronize_block();
      descend(wanted);
      synchronize_block();
    }
    const uint64_t key = scratch_.chosen;
    synchronize_block();  // the scratch is free again
    return key;
  }

 private:
  // Each thread checks whether the sum passes `wanted` in its bins. One thread finds the bin.
  __device__ void descend(double wanted) const {
    const uint64_t prefix = scratch_.chosen;
    const unsigned long long reached = scratch_.reached;
    synchronize_block();
    for (int bin = thread_index(); bin < 256; bin += block_threads()) {
      unsigned long long above = reached;
      for (int other = bin + 1; other < 256; ++other) above += scratch_.totals[other];
      if (static_cast<double>(above) >= wanted || static_cast<double>(above + scratch_.totals[bin]) < wanted)
        continue;
      scratch_.chosen = prefix << 8 | static_cast<uint64_t>(bin);
      scratch_.reached = above;
    }
  }

  GatheredLogits logits_;
  const float* first_;
  FilterScratch& scratch_;
};

// Probabilities as integers in units of 2^-40 of the largest.
class Share {
 public:
  __device__ Share(float temperature, float maximum)
      : temperature_(temperature), maximum_(maximum / temperature) {}
  __device__ float relative(float logit) const { return distance(logit / temperature_, maximum_); }
  __device__ unsigned long long operator()(float logit) const {
    return static_cast<unsigned long long>(expf(relative(logit)) * 0x1p40f);
  }

 private:
  float temperature_, maximum_;
};

// Each filter keeps a prefix of the order, so they may come in
// any order, except that top_p counts what the others keep.
class Filter {
 public:
  __device__ Filter(const GatheredRow& entries, const SamplingRow& row, int vocabulary)
      : share_(row.temperature, entries.maximum()) {
    if (!row.filtered()) return;
    if (row.min_p > 0) floor_ = logf(row.min_p);
    if (row.top_k > 0 && row.top_k < vocabulary) {
      const uint64_t kth = entries.key_where_sum_reaches(row.top_k, [](int, float) { return 1ull; });
      last_ = kth >> id_bits << id_bits;  // keeps ties
    }
    if (row.top_p < 1) {
      const auto share = [this](int id, float logit) { return keeps(id, logit) ? share_(logit) : 0ull; };
      const double wanted = static_cast<double>(row.top_p) * static_cast<double>(entries.sum(share));
      last_ = entries.key_where_sum_reaches(wanted > 1 ? wanted : 1, share);
    }
  }
  __device__ bool keeps(int id, float logit) const {
    return key_of(logit, id) >= last_ && (floor_ == -INFINITY || share_.relative(logit) >= floor_);
  }

 private:
  Share share_;
  float floor_ = -INFINITY;
  uint64_t last_ = 0;
};

// One row per block.
__global__ void __launch_bounds__(max_threads)
    draw_filtered(GatheredLogits logits, const SamplingRow* how, Candidate* out) {
  FilterScratch& scratch = *reinterpret_cast<FilterScratch*>(shared_memory());
  const int index = block_index().x;
  const SamplingRow row = how[index];
  const GatheredRow entries(logits, index, scratch);
  const Filter filter(entries, row, logits.vocabulary);
  const Scorer score(row);
  Candidate best = no_candidate();
  entries.for_each([&](int id, float logit) {
    if (filter.keeps(id, logit)) best = better(best, score(id, logit));
  });
  best = block_reduce(best, scratch.candidates, better);
  if (thread_index() == 0) out[index] = best;
}

struct LargestScratch {
  FilterScratch filter;
  uint64_t keys[max_largest_logits];
  int found;
};

// One block: collects the keys from the count-th on. The number of larger keys gives the place of each.
__global__ void __launch_bounds__(max_threads)
    largest_of_row(GatheredLogits logits, int row, int count, TokenLogit* out) {
  LargestScratch& scratch = *reinterpret_cast<LargestScratch*>(shared_memory());
  const GatheredRow entries(logits, row, scratch.filter);
  if (thread_index() == 0) scratch.found = 0;
  const uint64_t last = entries.key_where_sum_reaches(count, [](int, float) { return 1ull; });
  entries.for_each([&](int id, float logit) {
    if (const uint64_t key = key_of(logit, id); key >= last)
      scratch.keys[atomic_add(&scratch.found, 1)] = key;
  });
  synchronize_block();
  for (int i = thread_index(); i < count; i += block_threads()) {
    int place = 0;
    for (int other = 0; other < count; ++other) place += scratch.keys[other] > scratch.keys[i];
    out[place] = {id_of(scratch.keys[i]), logit_of(scratch.keys[i])};
  }
}

}  // namespace

void best_candidates(Stream stream, const ShardLogits& logits, const SamplingRow* how, Candidate* partial,
                     Candidate* out) {
  constexpr int columns_of_a_part = 4096;  // per block: fewer do not pay
  const int parts = std::clamp(
      std::min(logits.count / columns_of_a_part, max_partial_candidates / std::max(logits.rows, 1)), 1, 64);
  launch(best_of_part, {parts, logits.rows}, threads_for(logits.count / parts), max_warps * sizeof(Candidate),
         stream, logits, how, parts > 1 ? partial : out);
  if (parts > 1) launch(best_of_partial, {logits.rows}, 32, 0, stream, partial, parts, out);
}

void row_maxima(Stream stream, const ShardLogits& logits, float* maxima) {
  launch(maximum_of_row, {logits.rows}, threads_for(logits.count), max_warps * sizeof(float), stream, logits,
         maxima);
}

void exp_sums(Stream stream, const ShardLogits& logits, const float* maxima, int shards, int chunks,
              float* sums) {
  launch(exp_sum_of_chunk, {chunks, logits.rows}, threads_for(logits.width / chunks),
         max_warps * sizeof(float), stream, logits, maxima, shards, sums);
}

void sample_filtered(Stream stream, const GatheredLogits& logits, const SamplingRow* how, int rows,
                     Candidate* out) {
  launch(draw_filtered, {rows}, threads_for(logits.vocabulary), sizeof(FilterScratch), stream, logits, how,
         out);
}

void largest_logits(Stream stream, const GatheredLogits& logits, int row, int count, TokenLogit* out) {
  launch(largest_of_row, {1}, threads_for(logits.vocabulary), sizeof(LargestScratch), stream, logits, row,
         count, out);
}

}  // namespace maniple::cuda
