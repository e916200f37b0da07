// Gemm by cuBLASLt. prepare() chooses algorithms once, for numbers of rows half an octave apart. Each serves
// the numbers of rows down to the next smaller one. An unprepared shape gets its algorithm at its first use.
#pragma once

#include <kernels/cuda/cublaslt.hpp>
#include <kernels/cuda/gemm.hpp>
#include <kernels/support/unique_handle.hpp>
#include <kernels/tensor/tensor.hpp>

#include <compare>
#include <map>

namespace maniple::cuda {

// function: the member of CublasLt that destroys the handle.
template <typename T, auto function>
void destroy(T handle) {
  (cublaslt().*function)(handle);
}
template <typename T, auto function>
using CublasLtHandle = PlainHandle<T, destroy<T, function>>;

using LtHandle = CublasLtHandle<cublasLtHandle_t, &CublasLt::destroy>;
using MatmulHandle = CublasLtHandle<cublasLtMatmulDesc_t, &CublasLt::matmul_destroy>;
using LayoutHandle = CublasLtHandle<cublasLtMatrixLayout_t, &CublasLt::layout_destroy>;

class CublasLtGemm : public Gemm {
 public:
  explicit CublasLtGemm(Device& device);

  void multiply(device::Stream stream, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                TensorView out, BlockScales scales = {}) override;
  void prepare(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, TensorView out,
               bool blocks = false) override;

 private:
  struct Shape {
    int64_t m, n, k;
    DType type, out_type;
    bool biased, blocks;
    uint32_t x_alignment, weight_alignment, out_alignment;
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
  };
  struct Plan {
    UniqueHandle<MatmulHandle> operation;
    UniqueHandle<LayoutHandle> weight, x, out;
    cublasLtMatmulAlgo_t algorithm;
  };
  static Shape shape_of(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, ConstTensorView out,
                        bool blocks);
  Plan planned(const Shape& shape) const;
  Plan& plan_for(const Shape& shape);

  UniqueHandle<LtHandle> handle_;
  Tensor workspace_;
  std::map<Shape, Plan> plans_;
};

}  // namespace maniple::cuda
