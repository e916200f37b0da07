// The kernels of attention over the paged cache, of the store into it and of what surrounds latent attention, for host code. Pointers are
// device memory; the layouts are those of attention_batch.hpp.
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

// Their lengths fit in shared memory beside the tiles, on every architecture and for every head size.
inline constexpr int max_decode_sequences = 4096;

// Holds the sums of splits until the last split of their sequence. With fewer slots than splits in the batch,
// a part is a class of splits (attention_classes): one block computes them in turn, to the same bits.
struct DecodeWorkspace {
  float* slots;       // decode_slot_floats() each, 16-byte aligned
  int slot_count;     // at least `classes` times the sequences, or their splits
  int32_t* counters;  // decode_counters(); zero before the first call, and left zero
};
// Parts that blocks have drawn; then, for each sequence and query head, slots that are full.
constexpr int64_t decode_counters(int64_t sequences, int64_t query_heads) {
  return 1 + sequences * query_heads;
}
// A slot: the sums [query_heads, dims], then maximum and total [query_heads, 2], padded to keep the next slot aligned.
constexpr int64_t decode_slot_floats(int64_t query_heads, int64_t dims) {
  return (query_heads * (dims + 2) + 3) / 4 * 4;
}

// Writes the rows of `out` that belong to sequences with one query and a context, and no others; attention_prefill those of sequences with
// two queries or more. False, and nothing done, where there is no instance. A row's bits depend on its own query and context alone.
bool attention_decode(device::Stream stream, const AttentionArguments& arguments,
                      const DecodeWorkspace& workspace);
bool attention_prefill(device::Stream stream, const AttentionArguments& arguments);

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

// Ops::latent_store, with slots: one head, whose first lanes are normed. Ops::latent_queries, without: the first lanes stay.
struct LatentArguments {
  DType dtype;                  // of from and to
  const void* from;             // [tokens, heads, from_lanes]
  const float* cos_sin;         // [positions, rotary_width]
  const float* norm = nullptr;  // [value_dim], or null
  float epsilon = 0;
  int norm_size = 0;
  const int32_t* positions;        // [tokens]
  const int32_t* slots = nullptr;  // [tokens], or null
  void* to;                        // [slots or tokens x heads, key_dim]
  int tokens;
  int heads;
  int from_lanes;
  int value_dim;
  int key_dim;
  int rotary_width;
};
void latent_rows(device::Stream stream, const LatentArguments& arguments);

// Ops::matmul_heads.
struct HeadsArguments {
  DType x_dtype, out_dtype;
  const void* x;               // [tokens, heads, x_lanes]
  const void* const* weights;  // [heads], each [rows, columns]
  void* out;                   // [tokens, heads, out_lanes]
  int tokens;
  int heads;
  int x_lanes;
  int out_lanes;
  int rows;
  int columns;
};
void multiply_heads(device::Stream stream, const HeadsArguments& arguments);

}  // namespace maniple::cuda
