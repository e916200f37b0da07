// Attention of the sequences with several queries (prompts, chunks of them on a cached prefix) over the paged
// cache, on tensor cores: bf16 and fp16.
//
// A block has some queries of one sequence with all query heads of one KV head: these rows read the same keys
// and values. It goes through tiles of keys that begin at multiples of their size in the context: a row's
// bits do not depend on its chunk or the company in the batch.
#pragma once

#include <kernels/cuda/attention.hpp>

namespace maniple::cuda {

// Writes the rows of `out` that belong to sequences with two queries or more; leaves the others alone. False,
// and nothing is done, where there is no instance for the type and head size.
bool attention_prefill(device::Stream stream, const AttentionArguments& arguments);

}  // namespace maniple::cuda
