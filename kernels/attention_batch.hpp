// Descriptions of a batch and of the cache, for attention
// and the KV store. Plain data, filled by runtime/execution.
#pragma once

#include <kernels/tensor/tensor_view.hpp>

#include <bit>
#include <numeric>

namespace maniple {

struct HeadLayout {
  int64_t query_heads = 0;      // on this rank
  int64_t kv_heads = 0;         // on this rank
  int64_t key_dim = 0;          // lanes of a query and of a key
  int64_t value_dim = key_dim;  // of a value and of a result

  int64_t query_width() const { return query_heads * key_dim; }
  int64_t out_width() const { return query_heads * value_dim; }
  int64_t kv_width() const { return kv_heads * key_dim; }
  int64_t qkv_width() const { return query_width() + kv_heads * (key_dim + value_dim); }
};

// The layout of a KV cache block of one layer on this rank.
struct KvLayout {
  int64_t kv_heads = 0;
  int64_t key_dim = 0;
  int64_t block_size = 0;     // tokens, a power of two in 16..256
  DType dtype = DType::bf16;  // that of the activations, or fp8 where rows are not shared
  int64_t value_dim = key_dim;
  bool shared = false;  // latent attention: the first value_dim lanes of a key are its value, stored once

  // Values that have fewer lanes than keys are the first ones of these.
  static KvLayout of(const HeadLayout& heads, int64_t block_size, DType dtype) {
    return {heads.kv_heads, heads.key_dim,   block_size,
            dtype,          heads.value_dim, heads.value_dim < heads.key_dim};
  }
  // From one stored value of a head to the next.
  int64_t value_lanes() const { return shared ? key_dim : value_dim; }
  // What a position takes.
  int64_t lanes() const { return kv_heads * (key_dim + (shared ? 0 : value_dim)); }
  size_t key_block_bytes() const {
    return static_cast<size_t>(kv_heads * key_dim * block_size) * size_of(dtype);
  }
  // Keys and values of one block.
  size_t block_bytes() const { return static_cast<size_t>(lanes() * block_size) * size_of(dtype); }
  // Whether attention over such activations reads them.
  bool keeps(DType activations) const { return dtype == activations || (dtype == DType::fp8 && !shared); }
  // Whether these are the pages of such heads and activations.
  bool holds(const HeadLayout& heads, DType activations) const {
    return kv_heads == heads.kv_heads && key_dim == heads.key_dim && value_dim == heads.value_dim &&
           keeps(activations);
  }
};

// The KV cache of one layer on this rank: the keys of all blocks, then the values of all (shared rows are keys alone). Where a key or a value lies
// in its block know only the Ops that wrote it.
struct KvPages {
  TensorView bytes;  // uint8 [blocks, layout.block_bytes()]
  KvLayout layout;
  float key_scale = 1;  // of fp8: what is stored is key / key_scale, rounded to nearest even and saturated
  float value_scale = 1;

  int64_t slots() const { return bytes.shape[0] * layout.block_size; }
};

// The tokens of a step, sequence after sequence. Token i of sequence s (i counts from
// 0 within the step) has absolute position past_lengths[s] + i and sees positions
// 0 .. past_lengths[s] + i, or the last ones of them (AttentionCall::window). Prefill and decode differ only in their query lengths.
//
// A padding sequence has minus its number of query tokens as its past length, so its context is empty; where it has one token, that is a
// padding row. Slots are -1, positions valid ones. Nothing is stored for it, and its output rows are unspecified.
struct AttentionBatch {
  ConstTensorView
      query_starts;  // int32 [sequences + 1], first token of each sequence in the batch, last entry = tokens
  ConstTensorView past_lengths;  // int32 [sequences]
  ConstTensorView seats;         // int32 [sequences], the row of block_tables of each sequence
  ConstTensorView block_tables;  // int32 [seats, width], entries past the context, and left of the groups of
                                 // 16 positions that a window begins in, are not read
  ConstTensorView positions;     // int32 [tokens], absolute
  ConstTensorView
      slots;  // int32 [tokens], block * block_size + offset: where the token's key and value are stored

  int64_t sequences() const { return past_lengths.shape[0]; }
  int64_t tokens() const { return positions.shape[0]; }
};

// Ranks that share a context: the keys and values of split i (attention_split) are in the pages of owner i % owners.
struct ContextShare {
  int64_t owner = 0;
  int64_t owners = 1;
};

// Attention adds splits of this many absolute positions, so the order of its sums never depends on the batch:
// a chain of ascending splits in each class, split % attention_classes, then a tree over the classes, by merge_classes.
inline constexpr int64_t attention_split = 256;
inline constexpr int64_t attention_classes = 8;
// Of a batch on a GPU: the decode kernel keeps the lengths of all sequences in shared memory.
inline constexpr int64_t max_gpu_sequences = 4096;
inline constexpr int64_t max_gpu_head_dim = 576;  // a head fits in registers

// The classes of one owner's splits, in their order; as many owners as divide attention_classes hold whole subtrees.
constexpr int64_t classes_of(const ContextShare& context) {
  return attention_classes / std::gcd(attention_classes, context.owners);
}

// Calls merge(from, into) for classes at distance 4, then 2, then 1: the first of `count` then holds the sum of all.
template <typename Merge>
void merge_classes(int64_t count, Merge merge) {
  for (auto distance = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)) / 2); distance > 0;
       distance /= 2)
    for (int64_t into = 0; into < distance && into + distance < count; ++into) merge(into + distance, into);
}

// out = causal softmax(scale * q k^T) v over the pages; query heads share KV heads in groups.
//
// With several owners there is one KV head, and a rank computes its own splits for the query heads of all of them, which
// lie one owner after the other: queries are [owners, tokens, query width / owners], out is fp32 [owners, tokens,
// query heads / owners, value_dim + 2]: the sums of p * v, the maximum, the sum of p (0: no position seen). Ops::merge_partials
// makes the result of them, with the sinks, which attention then ignores. Block tables have an entry for each split; those of other owners are not read.
struct AttentionCall {
  ConstTensorView queries;  // [tokens, query width]
  HeadLayout heads;
  AttentionBatch batch;
  KvPages pages;
  TensorView out;  // [tokens, out width]
  float scale = 1;
  int64_t window = 0;  // a token sees this many positions, its own the last; 0: all. Not of shared rows
  // fp32 [query heads of the rank], or empty: a score that joins each softmax, of a value of zeros.
  ConstTensorView sinks = {};
  float soft_cap = 0;  // scores become cap * tanh(score / cap); 0: no cap
  ContextShare context = {};

  // Whether queries, output and pages agree in shape and type.
  bool consistent() const {
    if (!pages.layout.holds(heads, queries.dtype) || (window > 0 && pages.layout.shared)) return false;
    if (context.owners == 1 && !sinks.empty() && sinks.shape != Shape{heads.query_heads}) return false;
    if (context.owners == 1)
      return queries.shape == Shape{batch.tokens(), heads.query_width()} &&
             out.shape == Shape{batch.tokens(), heads.out_width()} && out.dtype == queries.dtype;
    const int64_t each = heads.query_heads / context.owners;
    return heads.kv_heads == 1 && pages.layout.block_size == attention_split &&
           queries.shape == Shape{context.owners, batch.tokens(), each * heads.key_dim} &&
           out.shape == Shape{context.owners, batch.tokens(), each, heads.value_dim + 2} &&
           out.dtype == DType::fp32;
  }
};

}  // namespace maniple
