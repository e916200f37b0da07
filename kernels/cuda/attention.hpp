// Attention over the paged cache, and the store into it: what the host code asks of the kernels. Pointers are
// device memory; the layouts are those of attention_batch.hpp.
#pragma once

#include <device/stream.hpp>
#include <kernels/tensor/dtype.hpp>

#include <cstdint>

namespace maniple::cuda {

struct AttentionArguments {
  DType dtype;          // of queries, cache and out
  const void* queries;  // [tokens, query_heads, head_dim]
  void* out;            // as queries
  const void* keys;     // [block, kv_head, block_size, head_dim]
  const void* values;
  const int32_t* query_starts;
  const int32_t* past_lengths;
  const int32_t* block_tables;  // [sequences, table_width]
  int table_width;
  int sequences;
  int tokens;
  int query_heads;
  int kv_heads;
  int head_dim;
  int block_size;
  float scale;
};

// Every type, head size up to 256 and block size; no tensor cores.
void attention_untuned(device::Stream stream, const AttentionArguments& arguments);

}  // namespace maniple::cuda
