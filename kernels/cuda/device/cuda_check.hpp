// Turns error codes of the CUDA runtime into Errors.
#pragma once

#include <kernels/support/check.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>

namespace maniple::cuda {

// Whether a kernel failed, which every later call of the process then reports as its own.
// Source: CUDA runtime API, cudaError_t: those that leave the process in an inconsistent state.
inline bool is_sticky(cudaError_t result) {
  constexpr cudaError_t sticky[] = {
      cudaErrorIllegalAddress,      cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
      cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,          cudaErrorHardwareStackError,
      cudaErrorLaunchFailure,       cudaErrorLaunchTimeout,      cudaErrorAssert,
      cudaErrorECCUncorrectable};
  return std::ranges::count(sticky, result) > 0;
}

[[noreturn]] inline void raise(cudaError_t result, const char* what) {
  const std::string error = fmt::format("{} ({})", cudaGetErrorString(result), cudaGetErrorName(result));
  if (!is_sticky(result)) fail(ExitCode::fault, "{}: {}", what, error);
  throw Error(
      ExitCode::fault, fmt::format("a kernel before this failed: {}; it was seen in {}", error, what),
      "the GPU computes nothing more for this process, and the call that says so is not the one that failed",
      "the same with `eager` and CUDA_LAUNCH_BLOCKING=1 names the call; then under compute-sanitizer, which "
      "names the line");
}
// what: "launching a kernel".
inline void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) [[unlikely]]
    raise(result, what);
}

}  // namespace maniple::cuda
