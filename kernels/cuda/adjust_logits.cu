#include <kernels/cuda/sampling.hpp>

#include <device/primitives.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int threads = 256;
constexpr int tile = 4096;  // tokens whose counts a block has in shared memory

// The tokens [first, first + count) of a row, and a number for each.
struct Tile {
  float* logits;
  int32_t first;
  int count;
  int32_t* marks;

  __device__ bool has(int32_t id) const { return id >= first && id - first < count; }
  __device__ void mark(int32_t id) {
    if (has(id)) atomic_add(&marks[id - first], 1);
  }
  // Before the marks of a change. A thread clears those that it has read in the change before.
  __device__ void clear() {
    for (int i = thread_index(); i < tile; i += threads) marks[i] = 0;
    synchronize_block();
  }
  // logit = f(logit, id, marks) for each token.
  template <typename F>
  __device__ void change(F f) {
    synchronize_block();
    for (int i = thread_index(); i < count; i += threads) logits[i] = f(logits[i], first + i, marks[i]);
  }
};

__device__ void mark_tokens(Tile& mine, const SequenceTables& tables, const AdjustedRow& row, int begin) {
  mine.clear();
  for (int position = begin + thread_index(); position < row.length; position += threads)
    mine.mark(tables.token(row.seat, position));
}

// Block (tile of the vocabulary, row).
__global__ void __launch_bounds__(threads)
    adjust_tile(float* logits, Logits shard, const AdjustedRow* rows, SequenceTables tables) {
  const AdjustedRow row = rows[block_index().y];
  const int begin = block_index().x * tile, left = shard.count - begin;
  const TokenLists lists = tables.lists_of(row.seat);
  Tile mine{logits + static_cast<int64_t>(row.row) * shard.width + begin, shard.first + begin,
            left < tile ? left : tile, reinterpret_cast<int32_t*>(shared_memory())};
  for (int i = thread_index(); i < lists.biases(); i += threads)
    if (const int32_t id = lists.biased(i); mine.has(id)) {
      float& logit = mine.logits[id - mine.first];
      logit = kept_finite(logit, logit + lists.bias(i));
    }
  if (row.repetition_penalty != 1) {
    mark_tokens(mine, tables, row, 0);
    mine.change([&](float logit, int32_t, int count) {
      return count > 0 ? repeated_logit(logit, row.repetition_penalty) : logit;
    });
  }
  if (row.frequency_penalty != 0 || row.presence_penalty != 0) {
    mark_tokens(mine, tables, row, row.prompt_length);
    mine.change([&](float logit, int32_t, int count) {
      const float by_frequency = rounded_product(row.frequency_penalty, static_cast<float>(count));
      return count > 0 ? counted_logit(logit, by_frequency, row.presence_penalty) : logit;
    });
  }
  if (!row.before_min_tokens && lists.bad_words() == 0 && !lists.limited()) return;
  mine.clear();
  for (int i = thread_index(); i < lists.ends() && row.before_min_tokens; i += threads)
    mine.mark(lists.end(i));
  for (int i = thread_index(); i < lists.bad_words(); i += threads)
    if (const auto word = lists.bad_word(i); tables.begins(row, word)) mine.mark(word.back());
  mine.change([&](float logit, int32_t id, int count) {
    return count > 0 || !lists.allows(id) ? masked_logit(logit) : logit;
  });
}

// One thread per row.
__global__ void __launch_bounds__(threads) raw_logit(Logits raw, const int32_t* rows, Candidate* candidates) {
  const int i = block_index().x * threads + thread_index();
  if (i >= raw.rows) return;
  Candidate& candidate = candidates[rows[i]];
  if (const int column = candidate.id - raw.first; candidate.id >= raw.first && column < raw.count)
    candidate.logit = raw.logits[static_cast<int64_t>(i) * raw.width + column];
}

// One thread per row.
__global__ void __launch_bounds__(threads) logit_of(Logits logits, const int32_t* ids, float* out) {
  const int i = block_index().x * threads + thread_index();
  if (i >= logits.rows) return;
  const int column = ids[i] - logits.first;
  out[i] = column >= 0 && column < logits.count
               ? logits.logits[static_cast<int64_t>(i) * logits.width + column]
               : -INFINITY;
}

}  // namespace

void adjust_logits(Stream stream, float* logits, const Logits& shard, const AdjustedRow* rows, int count,
                   const SequenceTables& tables) {
  if (shard.count > 0)
    launch(adjust_tile, {(shard.count + tile - 1) / tile, count}, threads, tile * sizeof(int32_t), stream,
           logits, shard, rows, tables);
}

void raw_logits(Stream stream, const Logits& raw, const int32_t* rows, Candidate* candidates) {
  launch(raw_logit, {(raw.rows + threads - 1) / threads}, threads, 0, stream, raw, rows, candidates);
}

void logits_of(Stream stream, const Logits& logits, const int32_t* ids, float* out) {
  launch(logit_of, {(logits.rows + threads - 1) / threads}, threads, 0, stream, logits, ids, out);
}

}  // namespace maniple::cuda
