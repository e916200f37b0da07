// Turns error codes of the CUDA runtime into Errors.
#pragma once

#include <kernels/support/check.hpp>

#include <cuda_runtime_api.h>

namespace maniple::cuda {

// what: "launching a kernel".
inline void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) [[unlikely]]
    fail(ExitCode::fault, "{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result));
}

}  // namespace maniple::cuda
