#include <kernels/cuda/skinny_product.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

// Reads the arguments where they lie: no register holds them.
template <typename T>
struct SkinnyOperands {
  using Element = T;
  static constexpr bool gathers = false;
  static constexpr int bits = 16;
  const SkinnyGemmArguments& a;

  __device__ const T* weight() const { return static_cast<const T*>(a.weight); }
  __device__ const T* x(int row) const {
    return static_cast<const T*>(a.x) + static_cast<int64_t>(row) * a.k;
  }
  __device__ int rows() const { return a.m; }
  __device__ int n() const { return a.n; }
  __device__ int k() const { return a.k; }
  __device__ bool gated() const { return a.gated; }
  __device__ GateActivation gate() const { return a.gate; }
  __device__ int width() const { return a.gated ? a.n / 2 : a.n; }
  __device__ float finished(float sum, int, int column) const { return sum + (a.bias ? a.bias[column] : 0); }
};

constexpr int columns = columns_for(max_skinny_rows);

template <typename T, bool aligned>
using Product = SkinnyProduct<SkinnyOperands<T>, max_skinny_rows, columns, aligned>;

template <typename T, bool aligned>
__global__ void __launch_bounds__(32 * product_warps, 3)
    skinny_product(PreviousKernel previous, SkinnyGemmArguments arguments, SkinnyGemmWorkspace workspace) {
  const SkinnyOperands<T> operands{arguments};
  Product<T, aligned>(operands, arguments, workspace).run(previous);
}

template <typename T>
void launch_skinny(Stream stream, const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  const bool aligned =
      a.k % 8 == 0 && (reinterpret_cast<uintptr_t>(a.x) | reinterpret_cast<uintptr_t>(a.weight)) % 16 == 0;
  launch_early(aligned ? skinny_product<T, true> : skinny_product<T, false>,
               {(a.n + columns - 1) / columns, slices_of(a.n, a.k)}, 32 * product_warps,
               Product<T, true>::shared_bytes, stream, a, workspace);
}

}  // namespace

bool skinny_gemm(Stream stream, const SkinnyGemmArguments& arguments, const SkinnyGemmWorkspace& workspace) {
  if (arguments.m > max_skinny_rows || (arguments.dtype != DType::bf16 && arguments.dtype != DType::fp16))
    return false;
  if (arguments.dtype == DType::bf16)
    launch_skinny<bf16>(stream, arguments, workspace);
  else
    launch_skinny<fp16>(stream, arguments, workspace);
  return true;
}

}  // namespace maniple::cuda
