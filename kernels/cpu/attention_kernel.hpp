// One tile of paged attention in plain pointers, the input of an instruction
// path's kernel. Kernel files include only headers of this kind: no inline
// function with external linkage may be compiled for more than the baseline.
#pragma once

#include <kernels/cpu/position_group.hpp>

#include <cstdint>

namespace maniple::cpu {

// Consecutive tokens of one sequence with the query heads of one KV head: row = token * group + head of the
// group.
struct AttentionTile {
  const void* queries;   // first token of the tile, first head of the group
  void* out;             // as queries, or fp32 partials (AttentionCall)
  int64_t token_stride;  // elements between tokens in queries
  int64_t out_stride;    // elements between tokens in out
  int64_t owner_stride;  // elements in queries from `owner_heads` heads of the group to the next as many
  int owner_heads;
  const void* keys;        // this KV head in block 0; the order is that of CpuPages
  const void* values;      // this KV head in block 0
  const void* next_keys;   // where the tile after this one begins to read, to prefetch; null: nobody knows
  int64_t key_stride;      // elements between blocks
  int64_t value_stride;    // elements between blocks
  int block_shift;         // log2 of the block size
  const int32_t* blocks;   // block table of the sequence
  int64_t next_split;      // positions from a split to the next one that the thread computes
  int64_t first_position;  // of the first token
  int64_t window;          // positions that a token sees, its own the last
  int tokens;
  int group;
  int key_dim;
  int value_dim;
  int value_lanes;  // from one stored value to the next
  float scale;      // of scores, that of e4m3 keys included
  float value_scale;
  const float* sinks;  // of the group's heads; null: none
};

inline constexpr int attention_tile_rows = 48;

// The partial result of one split: rows * value_dim sums of p * v, then the rows' maxima, then their sums of
// p. p = 2^(score - maximum), with scores in units of log 2.
struct AttentionKernel {
  // scratch: floats, attention_tile_rows * (key_dim + attention_split).
  void (*split)(const AttentionTile& tile, int64_t split, float* scratch, float* partial);
  // Merges a partial of later splits into total; rows that it is empty for keep theirs, and it replaces what is empty.
  void (*merge)(const AttentionTile& tile, const float* partial, float* total);
  // Adds the sinks to the sum of all splits, divides by the weights, rounds and writes tile.out.
  void (*finish)(const AttentionTile& tile, float* total);
  // split over a cache of e4m3.
  void (*split_e4m3)(const AttentionTile& tile, int64_t split, float* scratch, float* partial);
  // split over latent rows: keys lie in the order of values, and are the values.
  void (*split_latent)(const AttentionTile& tile, int64_t split, float* scratch, float* partial);
};

// bf16: the type of queries, cache and output is bf16, else fp32.
AttentionKernel attention_kernel_amx(bool bf16);
AttentionKernel attention_kernel_avx512_bf16(bool bf16);
AttentionKernel attention_kernel_avx512(bool bf16);
AttentionKernel attention_kernel_avx2(bool bf16);
AttentionKernel attention_kernel_portable(bool bf16);

}  // namespace maniple::cpu
