// Kernels of the benchmark itself.
#pragma once

#include <device/stream.hpp>

#include <cstddef>
#include <cstdint>

namespace maniple::bench {

// bf16 values in [-1, 1), by place and seed. count is a multiple of 8.
void fill_random(device::Stream stream, void* values, int64_t count, uint32_t seed);
// Reads all bytes once. A conditional store to sink keeps the
// compiler from dropping the reads. bytes: a multiple of 16.
void read_all(device::Stream stream, const void* data, int64_t bytes, uint32_t* sink);
// A kernel without work.
void idle(device::Stream stream);

}  // namespace maniple::bench
