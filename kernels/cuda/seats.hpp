// Kernels on the device's tables by seat. Pointers are device memory; contracts as in ops.hpp.
#pragma once

#include <device/stream.hpp>
#include <kernels/sampling_batch.hpp>

#include <cstdint>

namespace maniple::cuda {

void scatter(device::Stream stream, const int32_t* indices, const int32_t* values, int32_t* out, int count);
void resolve_last_tokens(device::Stream stream, const int32_t* last_tokens, int32_t* ids, int count,
                         const int32_t* places, int32_t* tokens);
// gathered is [shards, rows].
void choose(device::Stream stream, const Candidate* gathered, int shards, int rows, const int32_t* seats,
            Candidate* out, int32_t* last_tokens);

}  // namespace maniple::cuda
