// A CUDA runtime for one process without a GPU: the functions that maniple calls, linked in place of the
// library. Work stays in its stream until a call waits for it, so a read that comes too early sees old data.
// A query runs the operations that can run and waits for none. Strict where the runtime's documentation is:
//   the host cannot reach device memory, which starts as garbage; copies name their direction;
//   host memory of asynchronous copies is pinned;
//   a call that is not allowed during a capture spoils it;
//   after a kernel fails every later call fails.
// The environment sets the machine and its faults:
//   STAND_IN_PEERS=0: no GPU addresses another one's memory
//   STAND_IN_GPUS=N (1)   STAND_IN_MIB=N (512): of each   STAND_IN_TROUBLE=fault:N | hang:N: the N-th kernel
#pragma once

#include <emulation/emulator.hpp>

#include <functional>

struct CUstream_st;

namespace maniple::rehearsal {

// can_run: false while it waits for another rank, or hangs.
struct Operation {
  std::function<void(emulation::Order&)> run;
  std::function<bool()> can_run = [] { return true; };
  bool follows = false;  // another stream
};

// Joins the stream, or the graph that it records. Throws Error (fault) as the backend does.
void enqueue(CUstream_st* stream, Operation operation);
bool records(CUstream_st* stream);  // into a graph
// The same for a kernel, within the limits of a launch.
void launch(CUstream_st* stream, emulation::Grid grid, int threads, size_t shared_bytes,
            std::function<void(emulation::Order&)> kernel);

// cudaMalloc and cudaFree, for the other libraries. Null: they failed.
std::byte* allocate(size_t bytes);
bool release(std::byte* memory);

extern int algorithms_chosen;  // by the stand-in for cuBLASLt so far
extern int late_uploads;       // of graphs, by their first launch

}  // namespace maniple::rehearsal
