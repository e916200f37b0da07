// Launches kernels from host code. The emulation of the tests has a header of the same name.
#pragma once

#include <device/stream.hpp>

#include <cstddef>
#include <type_traits>

namespace maniple::device {

// A number of blocks, or the place of a block among them. Blocks themselves are one-dimensional.
struct Grid {
  int x = 1;
  int y = 1;
  int z = 1;
};

// Of a kernel that may start before the kernel before it in the stream has ended (launch_early): it calls wait_for(PreviousKernel).
struct PreviousKernel {};

// Whether launch_early is more than launch; to compare both.
void allow_early_starts(bool allowed);

// Throws Error (fault) where the device refuses.
void launch_kernel(const void* kernel, Grid grid, int threads, size_t shared_bytes, Stream stream,
                   void** arguments, bool early);
int resident_blocks_of(const void* kernel, int threads, size_t shared_bytes);

// How many blocks of the kernel the device runs at once.
template <typename... Parameters>
int resident_blocks(void (*kernel)(Parameters...), int threads, size_t shared_bytes) {
  return resident_blocks_of(reinterpret_cast<const void*>(kernel), threads, shared_bytes);
}

// threads: a multiple of 32. An empty grid launches nothing.
template <typename... Parameters>
void launch(void (*kernel)(Parameters...), Grid grid, int threads, size_t shared_bytes, Stream stream,
            std::type_identity_t<Parameters>... arguments) {
  void* pointers[] = {&arguments...};
  launch_kernel(reinterpret_cast<const void*>(kernel), grid, threads, shared_bytes, stream, pointers, false);
}

// The same, but the kernel may start as soon as all blocks of the one before it have started and wait_for, or have ended.
template <typename... Parameters>
void launch_early(void (*kernel)(PreviousKernel, Parameters...), Grid grid, int threads, size_t shared_bytes,
                  Stream stream, std::type_identity_t<Parameters>... arguments) {
  PreviousKernel previous;
  void* pointers[] = {&previous, &arguments...};
  launch_kernel(reinterpret_cast<const void*>(kernel), grid, threads, shared_bytes, stream, pointers, true);
}

}  // namespace maniple::device
