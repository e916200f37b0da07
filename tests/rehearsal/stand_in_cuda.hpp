// A CUDA runtime for one process without a GPU: the functions that maniple calls, linked in place of the
// library. Work waits in its stream until somebody waits for it, so what is read too early is old; who only
// asks for it runs what can run and waits for nobody. Strict where the runtime's documentation is:
//   device memory is out of the host's reach, holds rubbish at first, and copies name which side is which;
//   host memory of asynchronous copies is pinned;
//   what may not be called during a capture spoils it;
//   a kernel that fails makes every later call fail.
// The environment decides what there is and what goes wrong:
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
};

// Joins the stream, or the graph that it records. Throws Error (fault) as the backend does.
void enqueue(CUstream_st* stream, Operation operation);
// The same of a kernel, within the limits of a launch.
void launch(CUstream_st* stream, emulation::Grid grid, int threads, size_t shared_bytes,
            std::function<void(emulation::Order&)> kernel);

extern int algorithms_chosen;  // by the stand-in for cuBLASLt, so far

}  // namespace maniple::rehearsal
