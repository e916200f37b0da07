// What the sampling kernels read: the columns of a row of logits, lists of its first ones, or a list of some. Each calls a function for its
// entries and finds ties.
#pragma once

#include <kernels/cuda/reductions.hpp>
#include <kernels/cuda/sampling.hpp>

#include <algorithm>
#include <climits>
#include <cmath>

namespace maniple::cuda {

// NaN never wins. -0 becomes +0, because equal logits must have equal keys.
__device__ inline float nan_to_lowest(float logit) { return std::isnan(logit) ? -INFINITY : logit + 0.0f; }
// Keys order as logits do.
__device__ inline uint32_t key_of(float logit) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, nan_to_lowest(logit));
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float logit_of(uint32_t key) {
  return __builtin_bit_cast(float, key >> 31 ? key & 0x7fffffffu : ~key);
}
// logit - maximum; the difference of equal infinities is 0.
__device__ inline float distance(float logit, float maximum) {
  return logit == maximum ? 0.0f : logit - maximum;
}

__device__ inline float larger(float a, float b) { return a > b ? a : b; }

constexpr int max_threads = 512;  // of most blocks

// Blocks of each of some rows, about `blocks` of all: fewer than 4096 columns do not pay.
inline int parts_of(const Logits& logits, int rows, int blocks) {
  return std::clamp(blocks / std::max(rows, 1), 1, std::clamp(logits.count / 4096, 1, max_parts));
}

// Columns of a row of logits: of each of its shards one of equal parts.
struct Columns {
  const float* logits;
  int64_t stride;  // from one shard to the next
  int width, first;
  int left;   // of the row, from the first one on
  int count;  // of a shard, at most

  __device__ Columns(const Logits& all, int row, int part = 0, int parts = 1) : width(all.width) {
    const int of_shard = all.count < width ? all.count : width,
              size = (of_shard + 4 * parts - 1) / (4 * parts) * 4, begin = part * size;
    logits = all.logits + static_cast<int64_t>(row) * width + begin;
    stride = static_cast<int64_t>(all.rows) * width;
    first = all.first + begin;
    left = all.count - begin;
    count = of_shard - begin < size ? of_shard - begin : size;
  }

  // Calls f(id, logit, 1) for each entry, by all threads of the block: sixteen bytes a load where rows are aligned, one load ahead where
  // there are registers for it.
  template <bool ahead = true, typename F>
  __device__ void for_each(F f) const {
    const float* row = logits;
    for (int begin = 0; begin < left; begin += width, row += stride) {
      const int end = left - begin < count ? left - begin : count, threads = device::block_threads(),
                fours = reinterpret_cast<uintptr_t>(row) % 16 == 0 ? end / 4 : 0;
      device::Vector<float> next{};
      for (int at = device::thread_index() - (ahead ? threads : 0); at < fours; at += threads) {
        const device::Vector<float> four = ahead ? next : device::load_vector(row + 4 * at);
        if (ahead && at + threads < fours) next = device::load_vector(row + 4 * (at + threads));
        for (int i = 0; i < 4 && at >= 0; ++i) f(first + begin + 4 * at + i, four.values[i], 1);
      }
      for (int i = 4 * fours + device::thread_index(); i < end; i += threads) f(first + begin + i, row[i], 1);
    }
  }
  // The id of the n-th entry of a whole row with that logit: -1 before the first, INT_MAX after the last.
  __device__ int32_t tie(float logit, int n, int* scratch, int32_t* found) const {
    if (device::thread_index() == 0) *found = n > 0 ? INT_MAX : -1;
    for (int begin = 0, total; begin < left && n > 0; begin += device::block_threads(), n -= total) {
      const int i = begin + device::thread_index();
      const bool same = i < left && nan_to_lowest(logits[i / width * stride + i % width]) == logit;
      if (block_sum_before(same, scratch, total) == n - 1 && same) *found = first + i;
    }
    device::synchronize_block();
    return *found;
  }
  // So many columns of those of a single shard, from one on.
  __device__ int size() const { return left < count ? left : count; }
  __device__ Columns piece(int begin, int most) const {
    Columns some = *this;
    some.logits += begin;
    some.first += begin;
    some.left = size() - begin < most ? size() - begin : most;
    return some;
  }
};

// What lists say of a row's entries. Ties are searched in the columns of one of their shards.
struct Lists {
  const CandidateList* lists;
  int count, stride;
  Columns mine;

  // The first tokens of all lists come first. The last call for a list is for its further entries; their ids are unknown.
  template <typename F>
  __device__ void for_each(F f) const {
    for (int i = device::thread_index(); i < count * max_candidates; i += device::block_threads()) {
      const CandidateList& list = lists[i % count * stride];
      const TokenLogit token = list.tokens[i / count];
      if (token.id != INT_MAX) f(token.id, token.logit, 1);
      if (i / count == max_candidates - 1 && list.further > 0) f(INT_MAX, token.logit, list.further);
    }
  }
  // No fewer than there are entries.
  __device__ int most() const { return 1 << 24; }
  // The number of further entries with that logit.
  __device__ int further(float logit) const {
    int sum = 0;
    DEVICE_ROLLED for (const CandidateList* list = lists; list != lists + count * stride; list += stride) {
      if (list->tokens[max_candidates - 1].logit == logit) sum += list->further;
    }
    return sum;
  }
  __device__ int32_t tie(float logit, int n, int* scratch, int32_t* found) const {
    for (int i = 0; i < count && lists[i * stride].tokens[0].id < mine.first; ++i) {
      for (const TokenLogit& token : lists[i * stride].tokens) n -= token.logit == logit;
      if (lists[i * stride].tokens[max_candidates - 1].logit == logit) n -= lists[i * stride].further;
    }
    return mine.tie(logit, n, scratch, found);
  }
};

// Entries of a row in any order.
struct Listed {
  const TokenLogit* tokens;
  int count;

  template <typename F>
  __device__ void for_each(F f) const {
    for (int i = device::thread_index(); i < count; i += device::block_threads())
      f(tokens[i].id, tokens[i].logit, 1);
  }
  // The id of the n-th entry with that logit; -1 before the first.
  __device__ int32_t tie(float logit, int n, int* scratch, int32_t*) const {
    if (n == 0) return -1;
    return first_where(-1, INT_MAX - 1, [&](int32_t id) {
      int reached = 0;
      for_each([&](int32_t other, float of, int) { reached += of == logit && other <= id; });
      return block_sum(reached, scratch) >= n;
    });
  }
  __device__ int most() const { return count; }
};

// Takes a word of shared memory for each warp.
template <typename Entries>
__device__ float maximum_of(const Entries& entries) {
  float maximum = -INFINITY;
  entries.for_each([&](int, float logit, int) { maximum = larger(logit, maximum); });
  return block_reduce(maximum, reinterpret_cast<float*>(device::shared_memory()), larger);
}

}  // namespace maniple::cuda
