#include <kernels/cuda/dequant_gemm.hpp>
#include <kernels/cuda/skinny_product.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

template <typename T, int bits_of_code>
struct CodeOperands {
  using Element = T;
  static constexpr bool gathers = false;
  static constexpr int bits = bits_of_code;
  const DequantGemmArguments& a;

  __device__ const CodeMatrix& codes() const { return a.weight.codes; }
  __device__ const T* x(int row) const {
    return static_cast<const T*>(a.product.x) + static_cast<int64_t>(row) * a.product.k;
  }
  __device__ int rows() const { return a.product.m; }
  __device__ int n() const { return a.product.n; }
  __device__ int k() const { return a.product.k; }
  __device__ bool gated() const { return a.product.gated; }
  __device__ GateActivation gate() const { return a.product.gate; }
  __device__ int width() const { return a.product.gated ? a.product.n / 2 : a.product.n; }
  __device__ float finished(float sum, int row, int column) const {
    return cuda::finished(a.weight, sum, row, column);
  }
};

template <typename T, int bits, int rows>
using CodeProduct = SkinnyProduct<CodeOperands<T, bits>, rows, columns_for(rows), true>;

template <typename T, int bits, int rows>
__global__ void __launch_bounds__(32 * product_warps, rows <= 16 ? 3 : 2)
    code_product(PreviousKernel previous, DequantGemmArguments arguments, SkinnyGemmWorkspace workspace) {
  const CodeOperands<T, bits> operands{arguments};
  CodeProduct<T, bits, rows>(operands, arguments.product, workspace).run(previous);
}

template <typename T, int bits, int rows>
void launch_product(Stream stream, const DequantGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  constexpr int columns = columns_for(rows);
  launch_early(code_product<T, bits, rows>,
               {(a.product.n + columns - 1) / columns, slices_of(a.product.n, a.product.k)},
               32 * product_warps, CodeProduct<T, bits, rows>::shared_bytes, stream, a, workspace);
}

template <typename T, int bits>
void launch_product(Stream stream, const DequantGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  if (a.product.m <= 8) return launch_product<T, bits, 8>(stream, a, workspace);
  if (a.product.m <= 16) return launch_product<T, bits, 16>(stream, a, workspace);
  if (a.product.m <= 32) return launch_product<T, bits, 32>(stream, a, workspace);
  launch_product<T, bits, 64>(stream, a, workspace);
}

}  // namespace

bool dequant_gemm(Stream stream, const DequantGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  const DType type = a.product.dtype;
  if (a.product.m > max_code_rows || (type != DType::bf16 && type != DType::fp16)) return false;
  const auto of_type = [&](auto element) {
    using T = decltype(element);
    a.weight.codes.bits == 4 ? launch_product<T, 4>(stream, a, workspace)
                             : launch_product<T, 8>(stream, a, workspace);
  };
  type == DType::bf16 ? of_type(bf16{}) : of_type(fp16{});
  return true;
}

}  // namespace maniple::cuda
