// The functions of cuBLASLt that maniple calls. The program does not link the library. It opens it when a GPU
// is chosen, so it starts on machines without CUDA.
#pragma once

#include <kernels/support/shared_library.hpp>

#include <cublasLt.h>

namespace maniple::cuda {

struct CublasLt {
  SharedLibrary library;

  decltype(&cublasLtGetStatusString) status_string = library.function("cublasLtGetStatusString");
  decltype(&cublasLtCreate) create = library.function("cublasLtCreate");
  decltype(&cublasLtDestroy) destroy = library.function("cublasLtDestroy");
  decltype(&cublasLtMatrixLayoutCreate) layout_create = library.function("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set =
      library.function("cublasLtMatrixLayoutSetAttribute");
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = library.function("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtMatmulDescCreate) matmul_create = library.function("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescSetAttribute) matmul_set = library.function("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatmulDescDestroy) matmul_destroy = library.function("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulPreferenceCreate) preference_create =
      library.function("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set =
      library.function("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy =
      library.function("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulAlgoGetHeuristic) algorithms = library.function("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmul) matmul = library.function("cublasLtMatmul");
};

// Opens the library at the first call. Throws Error (preflight) where it is not installed.
const CublasLt& cublaslt();

inline void check(cublasStatus_t result, const char* what) {
  if (result != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(ExitCode::fault, "{}: {}", what, cublaslt().status_string(result));
}

}  // namespace maniple::cuda
