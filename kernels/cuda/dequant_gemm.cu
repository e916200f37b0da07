#include <kernels/cuda/dequant_gemm.hpp>
#include <kernels/cuda/skinny_product.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

template <typename T, int bits_of_code>
struct CodeOperands : SkinnyOperands<T> {
  static constexpr int bits = bits_of_code;
  const FinishArguments& weight;

  __device__ const CodeMatrix& codes() const { return weight.codes; }
  __device__ float finished(float sum, int row, int column) const {
    return cuda::finished(weight, sum, row, column);
  }
};

template <typename T, int bits, int rows>
using CodeProduct = SkinnyProduct<CodeOperands<T, bits>, rows, true>;

template <typename T, int bits, int rows>
__global__ void __launch_bounds__(32 * product_warps, rows <= 16 ? 3 : 2)
    code_product(PreviousKernel previous, DequantGemmArguments arguments, SkinnyGemmWorkspace workspace) {
  const CodeOperands<T, bits> operands{{{arguments.product}}, arguments.weight};
  CodeProduct<T, bits, rows>(operands, workspace).run(previous);
}

}  // namespace

bool dequant_gemm(Stream stream, const DequantGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  return a.product.m <= max_code_rows && with_tensor_core_type(a.product.dtype, [&]<typename T>(T) {
           with_constant<4, 8>(a.weight.codes.bits, [&](auto bits) {
             with_tile_rows(a.product.m, [&](auto rows) {
               launch_product<CodeProduct<T, bits(), rows()>>(code_product<T, bits(), rows()>, stream,
                                                              a.product, a, workspace);
             });
           });
         });
}

}  // namespace maniple::cuda
