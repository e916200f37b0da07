#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/sampling_entries.hpp>
#include <kernels/reference/noise.hpp>

#include <algorithm>
#include <cmath>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int max_threads = 512;
constexpr int max_warps = max_threads / 32;
constexpr int row_threads = 1024;  // of the one block that filters a row: more loads are on their way

// Blocks of each of some rows, about `blocks` of all: fewer than 4096 columns do not pay.
int parts_of(const Logits& logits, int rows, int blocks) {
  return std::clamp(blocks / std::max(rows, 1), 1, std::clamp(logits.count / 4096, 1, max_parts));
}

// The score of each token of a row.
class Scorer {
 public:
  __device__ explicit Scorer(const SamplingRow& row)
      : temperature_(row.temperature),
        above_((1 + 0x1p-20f) / temperature_),
        below_((1 - 0x1p-20f) / temperature_),
        key_(noise_key(row.seed, row.position)) {}
  __device__ Candidate operator()(int32_t id, float logit) const {
    if (temperature_ <= 0) return {logit, id, logit};
    const float noise = -logf(-log1pf(-noise_uniform(key_, static_cast<uint32_t>(id))));
    return {logit / temperature_ + noise, id, logit};
  }
  // No score is larger, and it takes neither logarithm nor division: both quotients' factors are 2^-20 off, more than their rounding.
  __device__ float ceiling(int32_t id, float logit) const {
    if (temperature_ <= 0) return logit;
    return larger(logit * above_, logit * below_) + noise_ceiling(key_, static_cast<uint32_t>(id));
  }

 private:
  float temperature_, above_, below_;  // 1 / temperature
  NoiseKey key_;
};

__device__ Candidate no_candidate() { return {-INFINITY, INT_MAX, -INFINITY}; }
__device__ Candidate not_finite() { return {INFINITY, -1, 0}; }  // no_token
__device__ Candidate better(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id) ? a : b;
}

template <typename Entries>
__device__ float maximum_of(const Entries& entries) {
  float maximum = -INFINITY;
  entries.for_each([&](int, float logit, int) { maximum = larger(logit, maximum); });
  return block_reduce(maximum, reinterpret_cast<float*>(shared_memory()), larger);
}

// --- shards ---

// Block (part, row).
__global__ void __launch_bounds__(max_threads, 3)
    best_of_part(PreviousKernel previous, Logits logits, const SamplingRow* how, const Cut* cuts,
                 Candidate* out) {
  wait_for(previous);
  const int row = block_index().y, part = block_index().x, parts = grid_size().x;
  const Scorer score(how[row]);
  const Cut cut = cuts && how[row].filtered() ? cuts[row] : Cut{};
  Columns columns(logits, row, part, parts);
  if (!cuts && how[row].filtered()) columns.count = 0;
  // A thread scores its entry with the highest ceiling. All threads score the others if one of them may still win.
  Candidate best = no_candidate();
  TokenLogit likely{INT_MAX, -INFINITY};
  float highest = -INFINITY, second = -INFINITY;
  columns.for_each([&](int32_t id, float logit, int) {
    if (!std::isfinite(logit)) best = not_finite();
    if (!cut.keeps({id, logit})) return;
    const float ceiling = score.ceiling(id, logit);
    second = larger(second, ceiling > highest ? highest : ceiling);
    if (ceiling > highest) highest = ceiling, likely = {id, logit};
  });
  if (likely.id != INT_MAX) best = better(best, score(likely.id, likely.logit + 0.0f));
  auto* const floats = reinterpret_cast<float*>(shared_memory());
  const float so_far = block_reduce(best.score, floats, larger);
  if (block_reduce(second, floats, larger) >= so_far)
    for (int i = thread_index(); i < columns.count; i += block_threads())
      if (const TokenLogit token{columns.first + i, columns.logits[i]}; cut.keeps(token))
        best = better(best, score(token.id, token.logit + 0.0f));
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

// Threads whose largest entries are one group's.
constexpr int group_threads = 4, num_groups = max_threads / group_threads;

struct FilterScratch {
  uint32_t low[num_bins], high[num_bins];  // the halves of sums
  Reach reach;
  unsigned long long sums[row_threads / 32];
  int counts[row_threads / 32], found;
  int32_t id;
  float bound, maxima[num_groups];
  TokenLogit tokens[max_largest_logits];

  // The entries that are as large as the one that was searched.
  __device__ int reached() const { return static_cast<int>(reach.above + reach.inside); }
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

// Where the sum of weights, in the order (logit descending, id ascending), first reaches wanted(sum of all); the key there is not below
// `lowest`. Each pass adds the weights of the entries that share the digits found so far by their next digit. Integer sums do not depend
// on the order of threads.
template <typename Entries, typename Wanted, typename Weight>
__device__ Cut where_sum_reaches(const Entries& entries, Wanted wanted_of, Weight weight,
                                 uint32_t lowest = 0) {
  FilterScratch& scratch = filter_scratch();
  const Reach& reach = scratch.reach;
  if (thread_index() == 0) scratch.reach = {};  // stays where nothing has a weight
  double wanted = 0;
  unsigned long long others = 0, all;  // others: below `lowest`
  for (int unknown = 32; unknown > 0; unknown -= digit_bits) {
    const int shift = unknown > digit_bits ? unknown - digit_bits : 0;
    for (int bin = thread_index(); bin < num_bins; bin += block_threads())
      scratch.low[bin] = scratch.high[bin] = 0;
    synchronize_block();
    const uint32_t digits = reach.key;
    entries.for_each([&](int32_t, float logit, int number) {
      const uint32_t key = key_of(logit);
      if (static_cast<uint64_t>(key ^ digits) >> unknown) return;
      const unsigned long long added = number * weight(key);
      if (key < lowest)
        others += added;
      else if (added > 0)
        scratch.add(key >> shift & (num_bins - 1), added);
    });
    synchronize_block();
    int bins = num_bins / block_threads(), bin = num_bins - 1 - thread_index() * bins;
    unsigned long long mine = 0;
    for (int i = 0; i < bins; ++i) mine += scratch.in_bin(bin - i);
    unsigned long long above = reach.above + block_sum_before(mine, scratch.sums, all);
    if (unknown == 32) {
      unsigned long long rest;
      block_sum_before(others, scratch.sums, rest);
      wanted = wanted_of(static_cast<double>(all + rest));
    }
    if (static_cast<double>(above) < wanted && static_cast<double>(above + mine) >= wanted) {
      for (; static_cast<double>(above + scratch.in_bin(bin)) < wanted; --bin) above += scratch.in_bin(bin);
      scratch.reach = {digits | static_cast<uint32_t>(bin) << shift, above, scratch.in_bin(bin)};
    }
    synchronize_block();
  }
  const unsigned long long each = weight(reach.key), ties = reach.inside / each;
  const auto taken = first_where(0ull, ties, [&](unsigned long long number) {
    return static_cast<double>(reach.above + number * each) >= wanted;
  });
  const float logit = logit_of(reach.key);
  return {logit,
          taken < ties ? entries.tie(logit, static_cast<int>(taken), scratch.counts, &scratch.id) : INT_MAX};
}

// Collects the entries that the cut keeps, as many as there is room for, and returns their number. takes_part: this thread may have one.
template <typename Entries>
__device__ int collect(const Entries& entries, const Cut cut, bool takes_part = true) {
  FilterScratch& scratch = filter_scratch();
  if (thread_index() == 0) scratch.found = 0;
  synchronize_block();
  if (takes_part)
    entries.for_each([&](int32_t id, float logit, int) {
      const TokenLogit token{id, nan_to_lowest(logit)};
      if (id == INT_MAX || !cut.keeps(token)) return;
      const int at = atomic_add(&scratch.found, 1);
      if (at < max_largest_logits) scratch.tokens[at] = token;
    });
  synchronize_block();
  return scratch.found;
}

// Collects the entries that reach the most-th largest maximum of a group: the first `most` are among them, and few others unless entries
// are equal or in order. Whether there was room for all.
template <typename Entries>
__device__ bool collect_first(const Entries& entries, int most) {
  FilterScratch& scratch = filter_scratch();
  float mine = -INFINITY;
  entries.for_each([&](int32_t, float logit, int) { mine = larger(logit, mine); });
  const int group = thread_index() / group_threads, member = thread_index() % group_threads;
  float maximum = mine;
  for (int mask = 1; mask < group_threads; mask *= 2) maximum = larger(maximum, shuffle_xor(maximum, mask));
  if (member == 0) scratch.maxima[group] = maximum;
  synchronize_block();
  int place = 0;  // of this group's maximum, from 1
  for (int other = member; other < num_groups; other += group_threads)
    place += Cut{maximum, group}.keeps({other, scratch.maxima[other]});
  for (int mask = 1; mask < group_threads; mask *= 2) place += shuffle_xor(place, mask);
  if (member == 0 && place == most) scratch.bound = maximum;
  synchronize_block();
  const float bound = scratch.bound;
  return collect(entries, {bound, INT_MAX}, mine >= bound) <= max_largest_logits;
}

// Of all entries the n-th, or the last.
template <typename Entries>
__device__ Cut nth(const Entries& entries, int n) {
  return where_sum_reaches(
      entries, [&](double all) { return all < n ? all : n; }, [](uint32_t) { return 1ull; });
}

// Writes the first `most` entries in their order, and the number of further ones with the logit of the last.
template <typename Entries>
__device__ void list_first(const Entries& entries, int most, TokenLogit* out, int32_t* further) {
  const bool collected = most <= num_groups && collect_first(entries, most);
  if (!collected) collect(entries, nth(entries, most));
  const FilterScratch& scratch = filter_scratch();
  for (int i = thread_index(); i < scratch.found || i < most; i += block_threads()) {
    const bool is_entry = i < scratch.found;
    const TokenLogit token = is_entry ? scratch.tokens[i] : TokenLogit{INT_MAX, -INFINITY};
    // Entries before this one; those with its logit or a larger one.
    int place = is_entry ? -1 : i, reached = is_entry ? 0 : most;
    for (int other = 0; other < scratch.found && is_entry; ++other) {
      place += Cut{token.logit, token.id}.keeps(scratch.tokens[other]);
      reached += scratch.tokens[other].logit >= token.logit;
    }
    if (place < most) out[place] = token;
    if (further && place == most - 1)
      *further =
          reached - most + (collected ? entries.further(token.logit) : scratch.reached() - scratch.found);
  }
}

// What min_p and top_p leave of the entries from a key on. row: a copy, which writes to shared memory cannot change.
template <typename Entries>
__device__ Cut likely_of(const Entries& entries, const SamplingRow row, uint32_t smallest) {
  const float largest = maximum_of(entries), maximum = largest / row.temperature;
  const auto relative = [&](uint32_t key) { return distance(logit_of(key) / row.temperature, maximum); };
  if (row.min_p > 0) {
    const float floor = logf(row.min_p);
    const uint32_t passes = first_where(key_of(-INFINITY) - 1, key_of(largest),
                                        [&](uint32_t key) { return relative(key) >= floor; });
    if (passes > smallest) smallest = passes;
  }
  if (row.top_p >= 1) return {logit_of(smallest), INT_MAX};
  // Probabilities as integers in units of 2^-40 of the largest.
  const auto share = [&](uint32_t key) {
    return key < smallest ? 0ull : static_cast<unsigned long long>(expf(relative(key)) * 0x1p40f);
  };
  // Entries below the floor together have at most half of what top_p leaves over, for all have at least the largest one's share: the sum
  // reaches it without them. Rounding is below the margins.
  const float floor = logf((1 - row.top_p) * 0.5f / entries.most()) - 0.01f - 0x1p-20f * fabsf(maximum);
  return where_sum_reaches(
      entries, [&](double all) { return row.top_p * all > 1 ? row.top_p * all : 1; }, share,
      key_of((floor + maximum) * row.temperature));
}

// Top_k keeps ties. What it leaves of columns is read once more and no further, if there is room for it.
template <typename Entries>
__device__ Cut cut_of(const Entries& entries, const SamplingRow row) {
  const FilterScratch& scratch = filter_scratch();
  const Cut kept{row.top_k > 0 ? nth(entries, row.top_k).logit : -INFINITY, INT_MAX};
  if (row.top_p >= 1 && row.min_p <= 0) return kept;
  const uint32_t smallest = key_of(kept.logit);
  if constexpr (std::is_same_v<Entries, Columns>)
    if (row.top_k > 0 && scratch.reached() <= max_largest_logits)
      return likely_of(Collected{entries, scratch.tokens, collect(entries, kept)}, row, smallest);
  return likely_of(entries, row, smallest);
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
__global__ void __launch_bounds__(max_threads, 2)
    list_of_parts(const CandidateList* partial, int parts, Logits logits, const int32_t* listed,
                  CandidateList* out) {
  const int i = block_index().x;
  list_first(Lists{partial + i * parts, parts, 1, {logits, listed[i]}}, max_candidates, out[i].tokens,
             &out[i].further);
}
__global__ void __launch_bounds__(max_threads, 2)
    cut_of_lists(const CandidateList* lists, int shards, Logits logits, const int32_t* listed,
                 const SamplingRow* how, Cut* cuts) {
  const int row = listed[block_index().x];
  const Cut cut = cut_of(Lists{lists + block_index().x, shards, grid_size().x, {logits, row}}, how[row]);
  if (thread_index() == 0) cuts[row] = cut;
}
__global__ void __launch_bounds__(row_threads)
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
  const int parts = parts_of(logits, logits.rows, 1536);
  launch_early(best_of_part, {parts, logits.rows}, threads_for(logits.count / parts, max_threads),
               max_warps * sizeof(Candidate), stream, logits, how, cuts, parts > 1 ? partial : out);
  if (parts > 1) launch_early(best_of_partial, {logits.rows}, 32, 0, stream, partial, parts, out);
}

void row_maxima(Stream stream, const Logits& logits, float* maxima) {
  launch(maximum_of_row, {logits.rows}, threads_for(logits.count, max_threads), max_warps * sizeof(float),
         stream, logits, maxima);
}

void exp_sums(Stream stream, const Logits& logits, const float* maxima, int shards, int chunks, float* sums) {
  launch(exp_sum_of_chunk, {chunks, logits.rows}, threads_for(logits.width / chunks, max_threads),
         max_warps * sizeof(float), stream, logits, maxima, shards, sums);
}

void candidates(Stream stream, const Logits& logits, const int32_t* listed, int rows, CandidateList* partial,
                CandidateList* out) {
  const int parts = parts_of(logits, rows, 2048);
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
  launch(cut_of_row, {rows}, row_threads, sizeof(FilterScratch), stream, logits, in_place, listed, how, cuts);
}

void largest_logits(Stream stream, const Logits& logits, int row, int count, TokenLogit* out) {
  launch(largest_of_row, {std::min(count, 1)}, max_threads, sizeof(FilterScratch), stream, logits, row, count,
         out);
}

}  // namespace maniple::cuda
