// Makes the device and the operations that were asked for, and says what GPUs there are.
#pragma once

#include <kernels/backend.hpp>

#include <vector>

namespace maniple {

bool has_cuda_backend();  // in this build
// Number of GPUs that this process sees; 0 in a build without CUDA.
int visible_gpus();
// The GPUs that this process sees; does not start to work with them.
std::vector<GpuIdentity> identify_gpus();

// Loads the libraries that a backend on a GPU calls beside the driver. Throws Error (preflight) where one is not
// installed.
void open_gpu_libraries();

// Throws Error (preflight) when the machine lacks what was asked for.
Backend make_backend(const BackendOptions& options);

}  // namespace maniple
