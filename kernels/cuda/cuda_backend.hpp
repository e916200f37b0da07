// The interface of this folder for kernels/factory.
#pragma once

#include <kernels/backend.hpp>

namespace maniple::cuda {

// GPUs that this process sees; 0 where there is no driver.
int visible_gpus();
std::vector<GpuIdentity> identify_gpus();
// Loads the libraries that make_backend needs besides the
// driver. Throws Error (preflight) where one is not installed.
void open_libraries();
// gpu: index among the visible GPUs. Throws Error (preflight) where there is no such GPU.
Backend make_backend(int gpu);

}  // namespace maniple::cuda
