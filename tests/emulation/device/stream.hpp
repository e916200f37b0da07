// Stands for the header of the CUDA backend: the kernels and host code that are compiled over the emulation.
#pragma once

#include <emulation/emulator.hpp>

// What a source compiled over the emulation defines in maniple::cuda gets names of its own, so that one test
// program holds the emulated backend beside the real one.
namespace maniple {
inline namespace emulated {
namespace cuda {}
namespace device {
using Stream = emulation::Order*;
}
}  // namespace emulated
}  // namespace maniple
