// What attention and the KV store read beside their tensors. Plain data, filled by runtime/execution.
#pragma once

#include <kernels/tensor/tensor_view.hpp>

namespace maniple {

// The KV cache of one layer on this rank: [block][kv_head][block_size][head_dim], block_size a power of two
// in 16..256.
struct KvPages {
  TensorView keys;
  TensorView values;

  int64_t num_blocks() const { return keys.shape[0]; }
  int64_t kv_heads() const { return keys.shape[1]; }
  int64_t block_size() const { return keys.shape[2]; }
  int64_t head_dim() const { return keys.shape[3]; }
};

// The tokens of a step, sequence after sequence. Token i of sequence s (i counted from 0 within the step)
// stands at absolute position past_lengths[s] + i and sees positions 0 .. past_lengths[s] + i. There is no
// prefill and no decode, only query lengths.
//
// A padding row is a sequence with past length -1 and one query token, whose context is empty: its slot is
// -1, its position a valid one. Nothing is stored for it, and what its rows of an output hold is unspecified.
struct AttentionBatch {
  ConstTensorView
      query_starts;  // int32 [sequences + 1], first token of each sequence in the batch, last entry = tokens
  ConstTensorView past_lengths;  // int32 [sequences]
  ConstTensorView seats;         // int32 [sequences], the row of block_tables of each sequence
  ConstTensorView block_tables;  // int32 [seats, width], entries past the context are not read
  ConstTensorView positions;     // int32 [tokens], absolute
  ConstTensorView
      slots;  // int32 [tokens], block * block_size + offset: where the token's key and value are stored

  int64_t sequences() const { return past_lengths.shape[0]; }
  int64_t tokens() const { return positions.shape[0]; }
};

// One position of a row-parallel or attention sum never depends on the batch: attention adds splits of this
// many absolute positions.
inline constexpr int64_t attention_split = 256;

}  // namespace maniple
