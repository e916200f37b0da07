// Emulated kernels that join a stream of the stand-in.
#pragma once

#include <rehearsal/stand_in_cuda.hpp>

#include <type_traits>

namespace maniple::device {

using Grid = emulation::Grid;
using Stream = CUstream_st*;  // cudaStream_t

struct PreviousKernel {
  bool* waited;
};
inline void allow_early_starts(bool) {}

template <typename... Parameters>
int resident_blocks(void (*)(Parameters...), int, size_t) {
  return emulation::resident_blocks;
}

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), Grid grid, int threads, size_t shared_bytes, Stream stream,
            std::type_identity_t<Parameters>... arguments) {
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "a kernel's arguments");
  const auto run = [=](emulation::Order& order) {
    emulation::run(grid, threads, shared_bytes, order, [&] { kernel(arguments...); });
  };
  rehearsal::launch(stream, grid, threads, shared_bytes, run);
}

template <typename... Parameters>
void launch_early(void (*kernel)(PreviousKernel, Parameters...), Grid grid, int threads, size_t shared_bytes,
                  Stream stream, std::type_identity_t<Parameters>... arguments) {
  const auto run = [=](emulation::Order& order) {
    emulation::run(grid, threads, shared_bytes, order,
                   [&] { emulation::run_waiting([&](bool* waited) { kernel({waited}, arguments...); }); });
  };
  rehearsal::launch(stream, grid, threads, shared_bytes, run);
}

}  // namespace maniple::device
