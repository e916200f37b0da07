#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/sampling_entries.hpp>
#include <kernels/reference/noise.hpp>

#include <algorithm>
#include <cmath>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int max_threads = 512, entry_threads = 128;
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

// --- device tables by seat: one thread per entry ---

__device__ int entry_index() { return block_index().x * entry_threads + thread_index(); }

__global__ void __launch_bounds__(entry_threads)
    scatter_entry(PreviousKernel previous, const int32_t* indices, const int32_t* values, int32_t* out,
                  int count) {
  wait_for(previous);
  if (const int i = entry_index(); i < count) out[indices[i]] = values[i];
}

__global__ void __launch_bounds__(entry_threads)
    resolve_entry(PreviousKernel previous, const int32_t* last_tokens, int32_t* ids, int count,
                  const int32_t* places, int32_t* tokens) {
  wait_for(previous);
  const int i = entry_index();
  if (i >= count) return;
  if (ids[i] < 0) ids[i] = last_tokens[-1 - ids[i]];
  if (places && places[i] != -1) tokens[places[i]] = ids[i];
}

__global__ void __launch_bounds__(entry_threads)
    choose_row(PreviousKernel previous, const Candidate* gathered, int shards, int rows, const int32_t* seats,
               Candidate* out, int32_t* last_tokens) {
  wait_for(previous);
  const int row = entry_index();
  if (row >= rows) return;
  Candidate best = gathered[row];
  for (int shard = 1; shard < shards; ++shard) best = better(best, gathered[shard * rows + row]);
  out[row] = best;
  if (const int32_t seat = seats[row]; seat != -1) last_tokens[seat] = best.id < 0 ? 0 : best.id;
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

void scatter(Stream stream, const int32_t* indices, const int32_t* values, int32_t* out, int count) {
  launch_early(scatter_entry, blocks_of(count, entry_threads), entry_threads, 0, stream, indices, values, out,
               count);
}

void resolve_last_tokens(Stream stream, const int32_t* last_tokens, int32_t* ids, int count,
                         const int32_t* places, int32_t* tokens) {
  launch_early(resolve_entry, blocks_of(count, entry_threads), entry_threads, 0, stream, last_tokens, ids,
               count, places, tokens);
}

void choose(Stream stream, const Candidate* gathered, int shards, int rows, const int32_t* seats,
            Candidate* out, int32_t* last_tokens) {
  launch_early(choose_row, blocks_of(rows, entry_threads), entry_threads, 0, stream, gathered, shards, rows,
               seats, out, last_tokens);
}

}  // namespace maniple::cuda
