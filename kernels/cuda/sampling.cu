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

// Blocks of a row of columns: fewer than 4096 do not pay.
int parts_of(int columns) { return std::clamp(columns / 4096, 1, max_parts); }
int threads_for(int items) { return std::clamp((items + 31) / 32 * 32, 32, max_threads); }

// NaN never wins. -0 becomes +0, because equal logits must have equal keys.
__device__ float nan_to_lowest(float logit) { return std::isnan(logit) ? -INFINITY : logit + 0.0f; }
// Keys order as logits do.
__device__ uint32_t key_of(float logit) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, nan_to_lowest(logit));
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ float logit_of(uint32_t key) {
  return __builtin_bit_cast(float, key >> 31 ? key & 0x7fffffffu : ~key);
}
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

// --- entries ---

// Columns of a row of logits: one of equal parts of a shard, or all shards.
struct Columns {
  const float* logits;
  int64_t stride;  // from one shard to the next
  int width, first, count;

  __device__ Columns(const Logits& all, int row, int part = 0, int parts = 1) : width(all.width) {
    const int size = (all.count + 4 * parts - 1) / (4 * parts) * 4, begin = part * size;
    logits = all.logits + static_cast<int64_t>(row) * width + begin;
    stride = static_cast<int64_t>(all.rows) * width;
    first = all.first + begin;
    count = all.count - begin < size ? all.count - begin : size;
  }

  // Calls f(id, logit, 1) for each entry, by all threads of the block: sixteen bytes a load where rows are aligned, one load ahead.
  template <typename F>
  __device__ void for_each(F f) const {
    const float* row = logits;
    for (int begin = 0; begin < count; begin += width, row += stride) {
      const int end = count - begin < width ? count - begin : width, threads = block_threads(),
                fours = reinterpret_cast<uintptr_t>(row) % 16 == 0 ? end / 4 : 0;
      Vector<float> next{};
      for (int at = thread_index() - threads; at < fours; at += threads) {
        const Vector<float> four = next;
        if (at + threads < fours) next = load_vector(row + 4 * (at + threads));
        for (int i = 0; i < 4 && at >= 0; ++i) f(first + begin + 4 * at + i, four.values[i], 1);
      }
      for (int i = 4 * fours + thread_index(); i < end; i += threads) f(first + begin + i, row[i], 1);
    }
  }
  // The id of the n-th entry with that logit: -1 before the first, INT_MAX after the last.
  __device__ int32_t tie(float logit, int n, int* scratch, int32_t* found) const {
    if (thread_index() == 0) *found = n > 0 ? INT_MAX : -1;
    for (int begin = 0, total; begin < count && n > 0; begin += block_threads(), n -= total) {
      const int i = begin + thread_index();
      const bool same = i < count && nan_to_lowest(logits[i / width * stride + i % width]) == logit;
      if (block_sum_before(same, scratch, total) == n - 1 && same) *found = first + i;
    }
    synchronize_block();
    return *found;
  }
};

// What lists say of a row's entries. Ties are searched in the columns of one of their shards.
struct Lists {
  const CandidateList* lists;
  int count, stride;
  Columns mine;

  // The last call for a list is for its further entries; their ids are unknown.
  template <typename F>
  __device__ void for_each(F f) const {
    for (int i = thread_index(); i < count * max_candidates; i += block_threads()) {
      const CandidateList& list = lists[i / max_candidates * stride];
      const TokenLogit token = list.tokens[i % max_candidates];
      if (token.id != INT_MAX) f(token.id, token.logit, 1);
      if (i % max_candidates == max_candidates - 1 && list.further > 0) f(INT_MAX, token.logit, list.further);
    }
  }
  __device__ int32_t tie(float logit, int n, int* scratch, int32_t* found) const {
    for (int i = 0; i < count && lists[i * stride].tokens[0].id < mine.first; ++i) {
      for (const TokenLogit& token : lists[i * stride].tokens) n -= token.logit == logit;
      if (lists[i * stride].tokens[max_candidates - 1].logit == logit) n -= lists[i * stride].further;
    }
    return mine.tie(logit, n, scratch, found);
  }
};

template <typename Entries>
__device__ float maximum_of(const Entries& entries) {
  float maximum = -INFINITY;
  entries.for_each([&](int, float logit, int) { maximum = larger(logit, maximum); });
  return block_reduce(maximum, reinterpret_cast<float*>(shared_memory()), larger);
}

// --- shards ---

// Block (part, row).
__global__ void __launch_bounds__(max_threads)
    best_of_part(PreviousKernel previous, Logits logits, const SamplingRow* how, const Cut* cuts,
                 Candidate* out) {
  wait_for(previous);
  const int row = block_index().y, part = block_index().x, parts = grid_size().x;
  const Scorer score(how[row]);
  const Cut cut = cuts && how[row].filtered() ? cuts[row] : Cut{};
  Candidate best = no_candidate();
  const auto take = [&](int32_t id, float logit, int) {
    if (!std::isfinite(logit))
      best = better(best, not_finite());
    else if (cut.keeps({id, logit}))
      best = better(best, score(id, logit + 0.0f));
  };
  if (cuts || !how[row].filtered()) Columns(logits, row, part, parts).for_each(take);
  best = block_reduce(best, reinterpret_cast<Candidate*>(shared_memory()), better);
  if (thread_index() == 0) out[row * parts + part] = best;
}

// One warp per row.
__global__ void __launch_bounds__(32)
    best_of_partial(PreviousKernel previous, const Candidate* partial, int parts, Candidate* out) {
  wait_for(previous);
  const int row = block_index().x;
  Candidate best = no_candidate();
  for (int i = lane_index(); i < parts; i += 32) best = better(best, partial[row * parts + i]);
  best = warp_reduce(best, better);
  if (lane_index() == 0) out[row] = best;
}

__global__ void __launch_bounds__(max_threads) maximum_of_row(Logits logits, float* maxima) {
  const int row = block_index().x;
  const float maximum = maximum_of(Columns(logits, row));
  if (thread_index() == 0) maxima[row] = maximum;
}

// The chunk's width alone decides the number of threads, and so the order of the sum.
__global__ void __launch_bounds__(max_threads)
    exp_sum_of_chunk(Logits logits, const float* maxima, int shards, float* sums) {
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

// --- filters ---

constexpr int digit_bits = 11, num_bins = 1 << digit_bits;

struct Reach {
  uint32_t key;                      // or its first digits
  unsigned long long above, inside;  // sums of larger keys, and of this one
};

struct FilterScratch {
  uint32_t low[num_bins], high[num_bins];  // the halves of sums
  Reach reach;
  unsigned long long sums[max_warps];
  int counts[max_warps], found;
  int32_t id;
  TokenLogit tokens[max_largest_logits];

  // Shared memory adds 32 bits at once, 64 only by trial.
  __device__ void add(uint32_t bin, unsigned long long weight) {
    const auto part = static_cast<uint32_t>(weight);
    const uint32_t carry = atomic_add(&low[bin], part) + part < part;
    if (const uint32_t rest = static_cast<uint32_t>(weight >> 32) + carry) atomic_add(&high[bin], rest);
  }
  __device__ unsigned long long in_bin(int bin) const {
    return static_cast<unsigned long long>(high[bin]) << 32 | low[bin];
  }
};
__device__ FilterScratch& filter_scratch() { return *reinterpret_cast<FilterScratch*>(shared_memory()); }

// Where the sum of weights, in the order (logit descending, id ascending), first reaches wanted(sum of all). Each pass adds the weights
// of the entries that share the digits found so far by their next digit. Integer sums do not depend on the order of threads.
template <typename Entries, typename Wanted, typename Weight>
__device__ Cut where_sum_reaches(const Entries& entries, Wanted wanted_of, Weight weight) {
  FilterScratch& scratch = filter_scratch();
  Reach reach{};
  double wanted = 0;
  for (int unknown = 32; unknown > 0; unknown -= digit_bits) {
    const int shift = unknown > digit_bits ? unknown - digit_bits : 0;
    for (int bin = thread_index(); bin < num_bins; bin += block_threads())
      scratch.low[bin] = scratch.high[bin] = 0;
    synchronize_block();
    if (thread_index() == 0) scratch.reach = reach;  // stays where nothing has a weight
    entries.for_each([&](int32_t, float logit, int number) {
      const uint32_t key = key_of(logit);
      if (static_cast<uint64_t>(key ^ reach.key) >> unknown) return;
      if (const unsigned long long each = weight(key))
        scratch.add(key >> shift & (num_bins - 1), number * each);
    });
    synchronize_block();
    int bins = num_bins / block_threads(), bin = num_bins - 1 - thread_index() * bins;
    unsigned long long mine = 0, all;
    for (int i = 0; i < bins; ++i) mine += scratch.in_bin(bin - i);
    unsigned long long above = reach.above + block_sum_before(mine, scratch.sums, all);
    if (unknown == 32) wanted = wanted_of(static_cast<double>(all));
    if (static_cast<double>(above) < wanted && static_cast<double>(above + mine) >= wanted) {
      for (; static_cast<double>(above + scratch.in_bin(bin)) < wanted; --bin) above += scratch.in_bin(bin);
      scratch.reach = {reach.key | static_cast<uint32_t>(bin) << shift, above, scratch.in_bin(bin)};
    }
    synchronize_block();
    reach = scratch.reach;
  }
  const unsigned long long each = weight(reach.key), ties = reach.inside / each;
  unsigned long long few = 0, taken = ties;
  while (taken - few > 1) {
    const unsigned long long middle = (few + taken) / 2;
    (static_cast<double>(reach.above + middle * each) < wanted ? few : taken) = middle;
  }
  const float logit = logit_of(reach.key);
  return {logit,
          taken < ties ? entries.tie(logit, static_cast<int>(taken), scratch.counts, &scratch.id) : INT_MAX};
}

// Writes the first `most` entries in their order, and the number of further ones with the logit of the last.
template <typename Entries>
__device__ void list_first(const Entries& entries, int most, TokenLogit* out, int32_t* further) {
  FilterScratch& scratch = filter_scratch();
  if (thread_index() == 0) scratch.found = 0;
  const Cut last = where_sum_reaches(
      entries, [&](double all) { return all < most ? all : most; }, [](uint32_t) { return 1ull; });
  entries.for_each([&](int32_t id, float logit, int) {
    const TokenLogit token{id, nan_to_lowest(logit)};
    if (last.keeps(token)) scratch.tokens[atomic_add(&scratch.found, 1)] = token;
  });
  synchronize_block();
  for (int i = thread_index(); i < most; i += block_threads()) {
    const TokenLogit token = i < scratch.found ? scratch.tokens[i] : TokenLogit{INT_MAX, -INFINITY};
    int place = i < scratch.found ? -1 : i;
    for (int other = 0; other < scratch.found && i < scratch.found; ++other)
      place += Cut{token.logit, token.id}.keeps(scratch.tokens[other]);
    out[place] = token;
  }
  if (further && thread_index() == 0)
    *further = static_cast<int>(scratch.reach.above + scratch.reach.inside) - scratch.found;
}

template <typename Entries>
__device__ Cut cut_of(const Entries& entries, const SamplingRow& row) {
  const float maximum = row.top_p < 1 || row.min_p > 0 ? maximum_of(entries) / row.temperature : 0;
  const auto relative = [&](uint32_t key) { return distance(logit_of(key) / row.temperature, maximum); };
  uint32_t smallest = 0;
  if (row.top_k > 0 || row.min_p > 0) {
    const float floor = row.min_p > 0 ? logf(row.min_p) : -INFINITY;
    const auto wanted = [&](double all) { return 0 < row.top_k && row.top_k < all ? row.top_k : all; };
    const auto passes = [&](uint32_t key) { return relative(key) >= floor ? 1ull : 0ull; };
    const float logit = where_sum_reaches(entries, wanted, passes).logit;
    if (row.top_p >= 1) return {logit, INT_MAX};  // keeps ties
    smallest = key_of(logit);
  }
  // Probabilities as integers in units of 2^-40 of the largest.
  const auto wanted = [&](double all) { return row.top_p * all > 1 ? row.top_p * all : 1; };
  const auto share = [&](uint32_t key) {
    return key < smallest ? 0ull : static_cast<unsigned long long>(expf(relative(key)) * 0x1p40f);
  };
  return where_sum_reaches(entries, wanted, share);
}

// Block (part, listed row).
__global__ void __launch_bounds__(max_threads)
    list_of_part(Logits logits, const int32_t* listed, CandidateList* out) {
  const int part = block_index().x, parts = grid_size().x;
  CandidateList& list = out[block_index().y * parts + part];
  list_first(Columns(logits, listed[block_index().y], part, parts), max_candidates, list.tokens,
             &list.further);
}
// One listed row per block, as below.
__global__ void __launch_bounds__(max_threads)
    list_of_parts(const CandidateList* partial, int parts, Logits logits, const int32_t* listed,
                  CandidateList* out) {
  const int i = block_index().x;
  list_first(Lists{partial + i * parts, parts, 1, {logits, listed[i]}}, max_candidates, out[i].tokens,
             &out[i].further);
}
__global__ void __launch_bounds__(max_threads)
    cut_of_lists(const CandidateList* lists, int shards, Logits logits, const int32_t* listed,
                 const SamplingRow* how, Cut* cuts) {
  const int row = listed[block_index().x];
  const Cut cut = cut_of(Lists{lists + block_index().x, shards, grid_size().x, {logits, row}}, how[row]);
  if (thread_index() == 0) cuts[row] = cut;
}
__global__ void __launch_bounds__(max_threads)
    cut_of_row(Logits logits, bool in_place, const int32_t* listed, const SamplingRow* how, Cut* cuts) {
  const int row = listed[block_index().x];
  if (!how[row].filtered() || how[row].filtered_by_candidates()) return;
  const Cut cut = cut_of(Columns(logits, in_place ? row : block_index().x), how[row]);
  if (thread_index() == 0) cuts[row] = cut;
}

// One block.
__global__ void __launch_bounds__(max_threads)
    largest_of_row(Logits logits, int row, int count, TokenLogit* out) {
  list_first(Columns(logits, row), count, out, nullptr);
}

}  // namespace

void best_candidates(Stream stream, const Logits& logits, const SamplingRow* how, const Cut* cuts,
                     Candidate* partial, Candidate* out) {
  const int parts = std::clamp(1024 / std::max(logits.rows, 1), 1, parts_of(logits.count));
  launch_early(best_of_part, {parts, logits.rows}, threads_for(logits.count / parts),
               max_warps * sizeof(Candidate), stream, logits, how, cuts, parts > 1 ? partial : out);
  if (parts > 1) launch_early(best_of_partial, {logits.rows}, 32, 0, stream, partial, parts, out);
}

void row_maxima(Stream stream, const Logits& logits, float* maxima) {
  launch(maximum_of_row, {logits.rows}, threads_for(logits.count), max_warps * sizeof(float), stream, logits,
         maxima);
}

void exp_sums(Stream stream, const Logits& logits, const float* maxima, int shards, int chunks, float* sums) {
  launch(exp_sum_of_chunk, {chunks, logits.rows}, threads_for(logits.width / chunks),
         max_warps * sizeof(float), stream, logits, maxima, shards, sums);
}

void candidates(Stream stream, const Logits& logits, const int32_t* listed, int rows, CandidateList* partial,
                CandidateList* out) {
  const int parts = parts_of(logits.count);
  launch(list_of_part, {parts, rows}, max_threads, sizeof(FilterScratch), stream, logits, listed,
         parts > 1 ? partial : out);
  if (parts > 1)
    launch(list_of_parts, {rows}, max_threads, sizeof(FilterScratch), stream, partial, parts, logits, listed,
           out);
}

void filter_candidates(Stream stream, const CandidateList* lists, int shards, const Logits& logits,
                       const int32_t* listed, int rows, const SamplingRow* how, Cut* cuts) {
  launch(cut_of_lists, {rows}, max_threads, sizeof(FilterScratch), stream, lists, shards, logits, listed, how,
         cuts);
}

void filter_logits(Stream stream, const Logits& logits, bool in_place, const int32_t* listed, int rows,
                   const SamplingRow* how, Cut* cuts) {
  launch(cut_of_row, {rows}, max_threads, sizeof(FilterScratch), stream, logits, in_place, listed, how, cuts);
}

void largest_logits(Stream stream, const Logits& logits, int row, int count, TokenLogit* out) {
  launch(largest_of_row, {1}, max_threads, sizeof(FilterScratch), stream, logits, row, count, out);
}

}  // namespace maniple::cuda
