// Kernels of the benchmark itself.
#pragma once

#include <device/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

struct CUgraph_st;  // *: cudaGraph_t

namespace maniple::bench {

// bf16 values in [-1, 1), by place and seed. count is a multiple of 8. As codes: no byte is a NaN of e4m3, which real weights and caches do not
// have, and for which kernels take a rare way.
void fill_random(device::Stream stream, void* values, int64_t count, uint32_t seed);
// Normal, with the standard deviation of a model's logits: 3.
void fill_logits(device::Stream stream, float* logits, int64_t count, uint32_t seed);
// Reads all bytes once. A conditional store to sink keeps the
// compiler from dropping the reads. bytes: a multiple of 16.
void read_all(device::Stream stream, const void* data, int64_t bytes, uint32_t* sink);
// A kernel without work.
void idle(device::Stream stream);
// Of the one kernel of a graph, as fields of JSON: registers, local bytes, the architecture of its code, and how many of its blocks a
// multiprocessor runs at once: as queried, and as seen with blocks of the same threads, shared memory and carveout that only wait.
std::string blocks_of(device::Stream stream, CUgraph_st* graph);

}  // namespace maniple::bench
