// Replaces the header of the CUDA backend for kernels and host code that are compiled over the emulation.
#pragma once

#include <emulation/emulator.hpp>

// Sources compiled over the emulation define maniple::cuda in this inline namespace, so one test program can
// hold the emulated backend beside the real one.
namespace maniple {
inline namespace emulated {
namespace cuda {}
namespace device {
using Stream = emulation::Order*;
}
}  // namespace emulated
}  // namespace maniple
