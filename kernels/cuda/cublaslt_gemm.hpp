// Gemm by cuBLASLt. The algorithm for a shape is chosen when it first comes (warm-up brings every shape that
// a captured graph uses) and kept.
#pragma once

#include <kernels/cuda/gemm.hpp>
#include <kernels/support/unique_handle.hpp>
#include <kernels/tensor/tensor.hpp>

#include <cublasLt.h>

#include <map>
#include <tuple>

namespace maniple::cuda {

struct LtTraits {
  using Handle = cublasLtHandle_t;
  static Handle none() { return nullptr; }
  static void release(Handle handle) noexcept { cublasLtDestroy(handle); }
};
struct MatmulTraits {
  using Handle = cublasLtMatmulDesc_t;
  static Handle none() { return nullptr; }
  static void release(Handle handle) noexcept { cublasLtMatmulDescDestroy(handle); }
};
struct LayoutTraits {
  using Handle = cublasLtMatrixLayout_t;
  static Handle none() { return nullptr; }
  static void release(Handle handle) noexcept { cublasLtMatrixLayoutDestroy(handle); }
};

class CublasLtGemm : public Gemm {
 public:
  explicit CublasLtGemm(Device& device);

  void multiply(device::Stream stream, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                TensorView out) override;

 private:
  // m, n, k, type of x and weight, type of out, biased, alignments of x, weight and out.
  using Shape = std::tuple<int64_t, int64_t, int64_t, DType, DType, bool, uint32_t, uint32_t, uint32_t>;
  struct Plan {
    UniqueHandle<MatmulTraits> operation;
    UniqueHandle<LayoutTraits> weight, x, out;
    cublasLtMatmulAlgo_t algorithm;
  };
  Plan planned(const Shape& shape) const;

  UniqueHandle<LtTraits> handle_;
  Tensor workspace_;
  std::map<Shape, Plan> plans_;
};

}  // namespace maniple::cuda
