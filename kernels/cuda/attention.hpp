// The kernels of attention over the paged cache and of the store into it, for host code. Pointers are device
// memory; the layouts are those of attention_batch.hpp.
#pragma once

#include <device/stream.hpp>
#include <kernels/tensor/dtype.hpp>

#include <cstdint>

namespace maniple::cuda {

constexpr int max_head_dim = 576;  // of rotary_store and attention_untuned; a multiple of 32

struct AttentionArguments {
  DType dtype;          // of queries, out and, unless it holds codes, the cache
  const void* queries;  // [tokens, query_heads, head_dim]
  void* out;            // as queries, or partials
  const void* keys;     // [block, kv_head, block_size, head_dim]
  const void* values;
  const int32_t* query_starts;
  const int32_t* past_lengths;
  const int32_t* seats;         // sequence s has row seats[s] of the block tables
  const int32_t* block_tables;  // [seats, table_width]
  int table_width;
  int sequences;
  int tokens;
  int query_heads;
  int kv_heads;
  int head_dim;
  int block_size;
  float scale;
  // A context of several owners (AttentionCall): this one has splits i * owners + owner, and out is fp32 partials.
  int owner = 0;
  int owners = 1;
  int classes = 8;     // of the owner's splits (classes_of)
  bool codes = false;  // of keys and values, e4m3: the scale is that of queries times keys
  float value_scale = 1;
};

struct RotaryArguments {
  DType dtype;                        // of qkv, queries and, unless it holds codes, the cache
  const void* qkv;                    // [tokens, query | key | value heads]
  const float* cos_sin;               // [positions, rotary_width]
  const float* query_norm = nullptr;  // [head_dim] or absent; with squares [heads, head_dim]
  const float* key_norm = nullptr;
  const float* squares =
      nullptr;  // of a norm over all heads of the model: [tokens, model_heads], query heads first
  int model_heads = 0, model_query_heads = 0;
  float epsilon;
  int norm_size;             // lanes in the mean of squares: a head without its padding
  const int32_t* positions;  // [tokens]
  const int32_t* slots;
  void* queries;  // [tokens, query_heads, head_dim]
  void* keys;     // [block, kv_head, block_size, head_dim]
  void* values;
  int tokens;
  int query_heads;
  int kv_heads;
  int head_dim;      // a multiple of 16, at most max_head_dim
  int rotary_width;  // the same, at most head_dim
  int block_size;
  bool codes = false;  // the cache keeps e4m3(key / key_scale)
  float key_scale = 1;
  float value_scale = 1;
};

// out [tokens, query and key heads]: the sum of squares of each.
void head_squares(device::Stream stream, DType dtype, const void* qkv, float* out, int tokens,
                  int query_heads, int kv_heads, int head_dim);
// Head norms, rotation and the store into the cache in one pass, one warp per (token, head).
void rotary_store(device::Stream stream, const RotaryArguments& arguments);

// Whether attention_decode and attention_prefill have an instance: bf16 and fp16, head sizes 16, 32, 64, 96,
// 128 and 256.
bool attention_on_tensor_cores(DType dtype, int64_t head_dim);

// What tuned kernels do not compute; in their arguments it would cost prefill its registers.
struct UntunedArguments {
  int value_dim;                 // lanes of a value and of a result
  int value_stride;              // from one stored value to the next
  int window = 0;                // positions that a token sees; 0: all
  const float* sinks = nullptr;  // [query_heads], or none
};
// Every type, head size up to max_head_dim and block size; no tensor cores.
void attention_untuned(device::Stream stream, const AttentionArguments& arguments, UntunedArguments more);

// Ops::merge_partials. partials: [owners, rows, head_dim + 2], out: dtype [rows, head_dim], of values. Owners are added in ascending order. sinks: [heads], or
// none; the head of a row is row % heads.
void merge_partials(device::Stream stream, DType dtype, const float* partials, int owners, int rows,
                    int head_dim, const float* sinks, int heads, void* out);

}  // namespace maniple::cuda
