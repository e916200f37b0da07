// Attention of the sequences with one query (decode) over the paged cache, on tensor cores: bf16 and fp16.
//
// A part of the work is one split of a sequence's context (attention_split absolute positions) for one KV
// head and up to 16 of its query heads. The blocks find their parts from the lengths on the device, so that a
// captured launch holds for any of them. Each split is summed in one fixed order, and the splits of a
// sequence are added in theirs: a row's bits depend on nothing but its own query and context.
#pragma once

#include <kernels/cuda/attention.hpp>

namespace maniple::cuda {

// Where splits wait for the last one of their sequence. With fewer slots than splits in the batch each
// sequence is one part and is done split after split, to the same bits.
struct DecodeWorkspace {
  float* slots;       // decode_slot_floats() each, 16-byte aligned
  int slot_count;     // at least the sequences
  int32_t* arrivals;  // decode_arrivals(); zero before the first call, and left zero
};
int decode_slot_floats(const AttentionArguments& arguments);
int decode_arrivals(const AttentionArguments& arguments);

// Writes the rows of `out` that belong to sequences with one query and a context; leaves the others alone.
// False, and nothing is done, where there is no instance.
bool attention_decode(device::Stream stream, const AttentionArguments& arguments,
                      const DecodeWorkspace& workspace);

}  // namespace maniple::cuda
