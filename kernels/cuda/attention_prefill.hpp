// Attention of the sequences with several queries (prompts, or chunks after
// a cached prefix) over the paged cache, on tensor cores: bf16 and fp16.
//
// A block takes some queries of one sequence with all query heads of one KV head: these rows read the same
// keys and values. Its tiles of keys begin at multiples of their size in the context, so a row's bits do not
// depend on its chunk or on the rest of the batch.
#pragma once

#include <kernels/cuda/attention.hpp>

namespace maniple::cuda {

// Writes the rows of `out` that belong to sequences with two queries or more, and no others. Returns false
// and does nothing where there is no instance for the type and head size.
bool attention_prefill(device::Stream stream, const AttentionArguments& arguments);

}  // namespace maniple::cuda
