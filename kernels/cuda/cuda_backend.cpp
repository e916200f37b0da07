#include <kernels/cuda/cublaslt_gemm.hpp>
#include <kernels/cuda/cuda_backend.hpp>
#include <kernels/cuda/cuda_device.hpp>
#include <kernels/cuda/cuda_ops.hpp>

namespace maniple::cuda {

void open_libraries() { cublaslt(); }

Backend make_backend(int gpu) {
  auto device = std::make_unique<CudaDevice>(gpu);
  auto ops = std::make_unique<CudaOps>(*device, device->stream(), std::make_unique<CublasLtGemm>(*device));
  return {std::move(device), std::move(ops)};
}

}  // namespace maniple::cuda
