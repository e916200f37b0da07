#pragma once

#include <device/stream.hpp>

#include <type_traits>

namespace maniple::device {

using Grid = emulation::Grid;

// A thread says here that it has waited.
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
  emulation::run(grid, threads, shared_bytes, *stream, [&] { kernel(arguments...); });
}

// Every thread has to wait, whatever way it takes.
template <typename... Parameters>
void launch_early(void (*kernel)(PreviousKernel, Parameters...), Grid grid, int threads, size_t shared_bytes,
                  Stream stream, std::type_identity_t<Parameters>... arguments) {
  emulation::run(grid, threads, shared_bytes, *stream,
                 [&] { emulation::run_waiting([&](bool* waited) { kernel({waited}, arguments...); }); });
}

}  // namespace maniple::device
