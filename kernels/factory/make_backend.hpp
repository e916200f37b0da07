// Makes the requested device with its operations, and lists the GPUs.
#pragma once

#include <kernels/backend.hpp>

#include <vector>

namespace maniple {

bool has_cuda_backend();  // in this build
// Number of GPUs that this process sees; 0 in a build without CUDA.
int visible_gpus();
// The GPUs that this process sees. Selects none of them.
std::vector<GpuIdentity> identify_gpus();

// Loads the libraries that the GPU backend calls besides the
// driver. Throws Error (preflight) where one is not installed.
void open_gpu_libraries();

// Throws Error (preflight) when the machine lacks the requested backend.
Backend make_backend(const BackendOptions& options);

}  // namespace maniple
