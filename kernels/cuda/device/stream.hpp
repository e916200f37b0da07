// The stream that kernels join.
#pragma once

#include <cuda_runtime_api.h>

namespace maniple::device {

using Stream = cudaStream_t;

}  // namespace maniple::device
