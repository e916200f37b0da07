// Turns what the CUDA libraries return into errors.
#pragma once

#include <kernels/support/check.hpp>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace maniple::cuda {

// what: "launching a kernel".
inline void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) [[unlikely]]
    fail(ExitCode::fault, "{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result));
}
inline void check(cublasStatus_t result, const char* what) {
  if (result != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(ExitCode::fault, "{}: {}", what, cublasLtGetStatusString(result));
}

}  // namespace maniple::cuda
