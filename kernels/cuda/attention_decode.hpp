// Attention of the sequences with one query (decode) over the paged cache, on tensor cores: bf16 and fp16.
//
// A part of the work is one split of a sequence's context (attention_split absolute positions) for one KV
// head and up to 16 of its query heads. The blocks find their parts from the lengths on the device, so a
// captured launch serves any lengths, and a block that is free draws the next part. Each split is summed in
// one fixed order, and so are the splits of a sequence: a row's bits depend on nothing but its own query and
// context.
#pragma once

#include <kernels/cuda/attention.hpp>

namespace maniple::cuda {

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

// Writes the rows of `out` that belong to sequences with one query and a context, and no others. Returns
// false and does nothing where there is no instance.
bool attention_decode(device::Stream stream, const AttentionArguments& arguments,
                      const DecodeWorkspace& workspace);

}  // namespace maniple::cuda
