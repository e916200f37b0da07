#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/skinny_product.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

template <typename T>
struct ElementOperands : SkinnyOperands<T> {
  static constexpr int bits = 16;

  __device__ const T* weight() const { return static_cast<const T*>(this->a.weight); }
  __device__ float finished(float sum, int, int column) const {
    return sum + (this->a.bias ? this->a.bias[column] : 0);
  }
};

template <typename T, bool aligned>
using Product = SkinnyProduct<ElementOperands<T>, max_skinny_rows, aligned>;

template <typename T, bool aligned>
__global__ void __launch_bounds__(32 * product_warps, 3)
    skinny_product(PreviousKernel previous, SkinnyGemmArguments arguments, SkinnyGemmWorkspace workspace) {
  const ElementOperands<T> operands{{{arguments}}};
  Product<T, aligned>(operands, workspace).run(previous);
}

}  // namespace

bool skinny_gemm(Stream stream, const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  return a.m <= max_skinny_rows && with_tensor_core_type(a.dtype, [&]<typename T>(T) {
           with_alignment(vectors_fit(a.k, a.x, a.weight), [&](auto aligned) {
             launch_product<Product<T, aligned.value>>(skinny_product<T, aligned.value>, stream, a, a,
                                                       workspace);
           });
         });
}

}  // namespace maniple::cuda
