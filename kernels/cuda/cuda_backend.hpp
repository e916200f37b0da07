// What kernels/factory asks of this folder.
#pragma once

#include <kernels/backend.hpp>

namespace maniple::cuda {

// GPUs that this process sees; 0 where there is no driver.
int visible_gpus();
std::vector<GpuIdentity> identify_gpus();
// Loads what make_backend needs beside the driver. Throws Error (preflight) where it is not installed.
void open_libraries();
// gpu: index among them. Throws Error (preflight) where there is none.
Backend make_backend(int gpu);

}  // namespace maniple::cuda
