// Where attention finds queries and pages and writes results, with one owner of the context or several.
#pragma once

#include <device/primitives.hpp>
#include <kernels/cuda/attention.hpp>

namespace maniple::cuda {

constexpr int split_size = 256;  // attention_split

// The factor of scores for a softmax in base 2.
constexpr float log2_e = 1.4426950408889634f;
constexpr float ln_2 = 0.6931471805599453f;

__device__ inline const int32_t* block_table(const AttentionArguments& a, int sequence) {
  return a.block_tables + static_cast<int64_t>(a.seats[sequence]) * a.table_width;
}

// Block sizes are powers of two, and a division takes longer than the rest of a tile's addresses.
__device__ inline int place_in_block(const AttentionArguments& a, int position) {
  return position & (a.block_size - 1);
}

// The row of queries and out that belongs to a query head of a token.
__device__ inline int64_t query_row(const AttentionArguments& a, int token, int head) {
  const int each = a.query_heads / a.owners;  // heads of an owner lie together
  return (static_cast<int64_t>(head / each) * a.tokens + token) * each + head % each;
}

// The first position of this owner's i-th split.
__device__ inline int split_begin(const AttentionArguments& a, int i) {
  return (i * a.owners + a.owner) * split_size;
}
// This owner's splits among the first `all`.
__device__ inline int own_splits(const AttentionArguments& a, int all) {
  return (all - a.owner + a.owners - 1) / a.owners;
}

// Attention over some splits of a context, for four dimensions of a row.
struct alignas(16) Four {
  float values[4];
};
struct Partial {
  float maximum;
  float total;
  Four sum;
};
__device__ inline Partial merged(const Partial& a, const Partial& b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  const float shrink_a = device::fast_exp2(a.maximum - maximum),
              shrink_b = device::fast_exp2(b.maximum - maximum);
  Partial both{maximum, a.total * shrink_a + b.total * shrink_b, {}};
  for (int i = 0; i < 4; ++i) both.sum.values[i] = a.sum.values[i] * shrink_a + b.sum.values[i] * shrink_b;
  return both;
}

// A partial: the sums, the maximum of score * scale, the sum of the weights.
__device__ inline float* partial_row(const AttentionArguments& a, int64_t row) {
  return static_cast<float*>(a.out) + row * (a.head_dim + 2);
}
// The maximum of `partial` is one of base 2.
__device__ inline void store_partial(float* row, int dims, int vector, const Partial& partial) {
  for (int i = 0; i < 4; ++i) row[4 * vector + i] = partial.sum.values[i];
  if (vector > 0) return;
  row[dims] = partial.maximum * ln_2;
  row[dims + 1] = partial.total;
}

}  // namespace maniple::cuda
