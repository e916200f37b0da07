#pragma once

#include <device/stream.hpp>

#include <type_traits>

namespace maniple::device {

using Grid = emulation::Grid;

template <typename... Parameters>
int resident_blocks(void (*)(Parameters...), int, size_t) {
  return emulation::resident_blocks;
}

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), Grid grid, int threads, size_t shared_bytes, Stream stream,
            std::type_identity_t<Parameters>... arguments) {
  emulation::run(grid, threads, shared_bytes, *stream, [&] { kernel(arguments...); });
}

}  // namespace maniple::device
