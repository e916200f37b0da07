#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/sampling_entries.hpp>
#include <kernels/reference/noise.hpp>

#include <cmath>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int max_warps = max_threads / 32;

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

// Block (part, row).
__global__ void __launch_bounds__(max_threads, 3)
    best_of_part(PreviousKernel previous, Logits logits, const SamplingRow* how, const Cut* cuts,
                 Candidate* out) {
  wait_for(previous);
  const int row = block_index().y, part = block_index().x, parts = grid_size().x;
  const Scorer score(how[row]);
  const Cut cut = cuts && how[row].filtered() ? cuts[row] : Cut{};
  Columns columns(logits, row, part, parts);
  if (!cuts && how[row].filtered()) columns.left = 0;
  // A thread scores its entry with the highest ceiling, and the others if one of them may still win.
  Candidate best = no_candidate();
  TokenLogit likely{INT_MAX, -INFINITY};
  float highest = -INFINITY, second = NAN;  // where there is an entry, not NaN
  columns.for_each([&](int32_t id, float logit, int) {
    if (!std::isfinite(logit)) best = not_finite();
    if (!cut.keeps({id, logit})) return;
    const float ceiling = score.ceiling(id, logit);
    second = larger(second, ceiling > highest ? highest : ceiling);
    if (ceiling > highest) highest = ceiling, likely = {id, logit};
  });
  if (likely.id != INT_MAX) best = better(best, score(likely.id, likely.logit + 0.0f));
  const float so_far = block_reduce(best.score, reinterpret_cast<float*>(shared_memory()), larger);
  if (second >= so_far)
    columns.for_each<false>([&](int32_t id, float logit, int) {
      if (cut.keeps({id, logit})) best = better(best, score(id, logit + 0.0f));
    });
  best = block_reduce(best, reinterpret_cast<Candidate*>(shared_memory()), better);
  if (thread_index() == 0) out[part * grid_size().y + row] = best;
}

// One warp per row. gathered: [count, rows]. seats: or null.
__global__ void __launch_bounds__(32)
    choose_row(PreviousKernel previous, const Candidate* gathered, int count, const int32_t* seats,
               Candidate* out, int32_t* last_tokens) {
  wait_for(previous);
  const int row = block_index().x, rows = grid_size().x;
  Candidate best = no_candidate();
  for (int i = lane_index(); i < count; i += 32) best = better(best, gathered[i * rows + row]);
  best = warp_reduce(best, better);
  if (lane_index() > 0) return;
  out[row] = best;
  if (seats && seats[row] != -1) last_tokens[seats[row]] = best.id < 0 ? 0 : best.id;
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

// --- the first entries of rows ---

// Threads whose largest entries are one group's.
constexpr int group_threads = 4, num_groups = max_threads / group_threads;
constexpr int max_collected = 2 * max_largest_logits;

struct ListScratch {
  int found, beyond;
  TokenLogit bound, best[num_groups];
  TokenLogit tokens[max_collected];
};
__device__ ListScratch& list_scratch() { return *reinterpret_cast<ListScratch*>(shared_memory()); }

// Collects the entries that the cut keeps, as many as there is room for, and counts those with its logit beyond it. Returns how many it
// keeps. anew: those of other calls do not stay. takes_part: this thread may have one.
template <typename Entries>
__device__ int collect(const Entries& entries, const Cut cut, bool anew = true, bool takes_part = true) {
  ListScratch& scratch = list_scratch();
  if (anew && thread_index() == 0) scratch.found = scratch.beyond = 0;
  synchronize_block();
  int beyond = 0;
  if (takes_part)
    entries.for_each([&](int32_t id, float logit, int) {
      const TokenLogit token{id, nan_to_lowest(logit)};
      if (id == INT_MAX) return;
      if (!cut.keeps(token)) {
        beyond += token.logit == cut.logit;
        return;
      }
      const int at = atomic_add(&scratch.found, 1);
      if (at < max_collected) scratch.tokens[at] = token;
    });
  if (beyond > 0) atomic_add(&scratch.beyond, beyond);
  synchronize_block();
  const int found = scratch.found;
  synchronize_block();
  return found;
}

// The most-th of the first entries of all groups: the first `most` of all entries are not beyond it, and few others. takes_part: whether
// this thread may have one of them.
template <typename Entries>
__device__ Cut bound_of_first(const Entries& entries, int most, bool& takes_part) {
  ListScratch& scratch = list_scratch();
  TokenLogit best{INT_MAX - max_threads + thread_index(), -INFINITY};  // of no entry, and of no other thread
  entries.for_each([&](int32_t id, float logit, int) {
    if (logit > best.logit) best = {id, logit};
  });
  const float mine = best.logit;
  const int group = thread_index() / group_threads, member = thread_index() % group_threads;
  for (int mask = 1; mask < group_threads; mask *= 2)
    if (const TokenLogit other = shuffle_xor(best, mask); Cut{best.logit, best.id}.keeps(other)) best = other;
  if (member == 0) scratch.best[group] = best;
  synchronize_block();
  int place = 0;  // of this group, from 1
  for (int other = member; other < num_groups; other += group_threads)
    place += Cut{best.logit, best.id}.keeps(scratch.best[other]);
  for (int mask = 1; mask < group_threads; mask *= 2) place += shuffle_xor(place, mask);
  if (member == 0 && place == most) scratch.bound = best;
  synchronize_block();
  takes_part = mine >= scratch.bound.logit;
  return {scratch.bound.logit, scratch.bound.id};
}

// Writes the first `most` of the entries that were collected in their order, and counts all further ones with the logit of the last. cut:
// what they were collected by.
__device__ void write_first(int most, const Cut cut, TokenLogit* out) {
  ListScratch& scratch = list_scratch();
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
    if (place == most - 1) scratch.beyond = reached - most + (token.logit == cut.logit ? scratch.beyond : 0);
  }
  synchronize_block();
}

// Writes the first `most` entries in their order, and counts further ones as write_first does. Where a bound leaves too many, they are
// collected by pieces, and only the first ones stay before there is no room for the next piece.
__device__ void list_first(const Columns& columns, int most, TokenLogit* out) {
  ListScratch& scratch = list_scratch();
  bool takes_part = true;
  Cut cut = most <= num_groups ? bound_of_first(columns, most, takes_part) : Cut{};
  int found = collect(columns, cut, true, takes_part);
  constexpr int size = max_collected - max_largest_logits;
  const bool too_many = found > max_collected;
  for (int begin = 0; too_many && begin < columns.size(); begin += size) {
    if (begin > 0 && found > max_largest_logits) {
      write_first(most, cut, out);
      for (int i = thread_index(); i < most; i += block_threads()) scratch.tokens[i] = out[i];
      if (thread_index() == 0) scratch.found = most;
      cut = {out[most - 1].logit, out[most - 1].id};
    }
    found = collect(columns.piece(begin, size), cut, begin == 0);
  }
  write_first(most, cut, out);
}

// Block (part, listed row).
__global__ void __launch_bounds__(max_threads, 2)
    list_of_part(Logits logits, const int32_t* listed, CandidateList* out) {
  const int part = block_index().x, parts = grid_size().x;
  CandidateList& list = out[block_index().y * parts + part];
  list_first(Columns(logits, listed[block_index().y], part, parts), max_candidates, list.tokens);
  if (thread_index() == 0) list.further = list_scratch().beyond;
}

// One listed row per block. There is room for all that the bound leaves: half of the groups are beyond it.
__global__ void __launch_bounds__(max_threads, 2)
    list_of_parts(const CandidateList* partial, int parts, Logits logits, const int32_t* listed,
                  CandidateList* out) {
  const Lists lists{partial + block_index().x * parts, parts, 1, {logits, listed[block_index().x]}};
  CandidateList& list = out[block_index().x];
  bool takes_part = true;
  const Cut bound = bound_of_first(lists, max_candidates, takes_part);
  collect(lists, bound, true, takes_part);
  write_first(max_candidates, bound, list.tokens);
  if (thread_index() == 0)
    list.further = list_scratch().beyond + lists.further(list.tokens[max_candidates - 1].logit);
}

// One block.
__global__ void __launch_bounds__(max_threads, 2)
    largest_of_row(Logits logits, int row, int count, TokenLogit* out) {
  list_first(Columns(logits, row), count, out);
}

// --- device tables by seat: one thread per entry ---

__global__ void __launch_bounds__(flat_threads)
    scatter_entry(PreviousKernel previous, const int32_t* indices, const int32_t* values, int32_t* out,
                  int count) {
  wait_for(previous);
  if (const int64_t i = flat_index(); i < count) out[indices[i]] = values[i];
}

__global__ void __launch_bounds__(flat_threads)
    resolve_entry(PreviousKernel previous, const int32_t* last_tokens, int32_t* ids, int count,
                  const int32_t* places, int32_t* tokens) {
  wait_for(previous);
  const int64_t i = flat_index();
  if (i >= count) return;
  if (ids[i] < 0) ids[i] = last_tokens[-1 - ids[i]];
  if (places && places[i] != -1) tokens[places[i]] = ids[i];
}

}  // namespace

void best_candidates(Stream stream, const Logits& logits, const SamplingRow* how, const Cut* cuts,
                     Candidate* partial, Candidate* out) {
  const int parts = parts_of(logits, logits.rows, 1536);
  launch_early(best_of_part, {parts, logits.rows}, threads_for(logits.count / parts, max_threads),
               max_warps * sizeof(Candidate), stream, logits, how, cuts, parts > 1 ? partial : out);
  if (parts > 1) choose(stream, partial, parts, logits.rows, nullptr, out, nullptr);
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
  launch(list_of_part, {parts, rows}, max_threads, sizeof(ListScratch), stream, logits, listed,
         parts > 1 ? partial : out);
  if (parts > 1)
    launch(list_of_parts, {rows}, max_threads, sizeof(ListScratch), stream, partial, parts, logits, listed,
           out);
}

void largest_logits(Stream stream, const Logits& logits, int row, int count, TokenLogit* out) {
  launch(largest_of_row, {1}, max_threads, sizeof(ListScratch), stream, logits, row, count, out);
}

void scatter(Stream stream, const int32_t* indices, const int32_t* values, int32_t* out, int count) {
  launch_early(scatter_entry, flat_blocks(count), flat_threads, 0, stream, indices, values, out, count);
}

void resolve_last_tokens(Stream stream, const int32_t* last_tokens, int32_t* ids, int count,
                         const int32_t* places, int32_t* tokens) {
  launch_early(resolve_entry, flat_blocks(count), flat_threads, 0, stream, last_tokens, ids, count, places,
               tokens);
}

void choose(Stream stream, const Candidate* gathered, int shards, int rows, const int32_t* seats,
            Candidate* out, int32_t* last_tokens) {
  launch_early(choose_row, {rows}, 32, 0, stream, gathered, shards, seats, out, last_tokens);
}

}  // namespace maniple::cuda
