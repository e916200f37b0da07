#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/product_tiles.hpp>
#include <kernels/cuda/reductions.hpp>
#include <kernels/cuda/skinny_gemm.hpp>

#include <algorithm>

namespace maniple::cuda {

using namespace device;

namespace {

// Few columns leave multiprocessors idle: then k is cut into slices, each at least one turn of every warp.
int slices_of(const SkinnyGemmArguments& a) {
  const int tiles = (a.n + columns_for(1) - 1) / columns_for(1);
  return std::max(1, std::min(skinny_arrivals / tiles, a.k / (product_warps * turn_k)));
}

template <typename T, int bits_of_element>
struct SkinnyOperands {
  using Element = T;
  static constexpr int bits = bits_of_element;
  const SkinnyGemmArguments& a;

  static constexpr bool gathers() { return false; }
  __device__ const T* weight() const { return static_cast<const T*>(a.weight); }
  __device__ const CodeMatrix& codes() const { return a.finish.codes; }
  __device__ const T* x(int row) const {
    return static_cast<const T*>(a.x) + static_cast<int64_t>(row) * a.k;
  }
  __device__ int rows() const { return a.m; }
  __device__ int width() const { return a.gated ? a.n / 2 : a.n; }
};

template <typename T, int bits, int rows, bool aligned>
class SkinnyProduct {
 public:
  using Operands = SkinnyOperands<T, bits>;
  using Product = TileProduct<Operands, rows, aligned>;
  static constexpr int columns = Product::Sizes::columns;
  static constexpr size_t shared_bytes = Product::Sizes::bytes + sizeof(int);

  // operands: an object of the kernel. One inside this object would make the compiler keep both in local memory.
  __device__ SkinnyProduct(const Operands& operands, const SkinnyGemmWorkspace& workspace)
      : workspace_(workspace), operands_(operands), product_(operands, block_index().x) {}

  // The first copies of the weight, which no kernel writes, do not wait.
  __device__ void run(PreviousKernel previous) {
    const int slices = grid_size().y;
    product_.multiply(block_index().y, slices, [&] { wait_for(previous); });
    if (slices == 1) return write_results(Product::sum_of_warps);
    for (int i = thread_index(); i < operands_.a.m * columns; i += block_threads()) {
      const int row = i / columns, column = i % columns;
      if (product_.column_of(column) < operands_.a.n)
        *partial(block_index().y, row, column) = Product::sum_of_warps(row, column);
    }
    int& before = *reinterpret_cast<int*>(shared_memory() + shared_bytes - sizeof(int));
    if (!is_last_to_arrive(workspace_.arrivals + block_index().x, slices, before)) return;
    memory_fence();
    write_results([&](int row, int column) {
      float sum = 0;
      for (int slice = 0; slice < slices; ++slice) sum += *partial(slice, row, column);
      return sum;
    });
  }

 private:
  __device__ float* partial(int slice, int row, int column) const {
    return workspace_.partials + (static_cast<int64_t>(slice) * operands_.a.m + row) * operands_.a.n +
           product_.column_of(column);
  }

  // Calls sum_of(row, column of the block).
  template <typename F>
  __device__ void write_results(F sum_of) const {
    product_.write(0, [&](int row, int column) {
      return finished<bits>(operands_.a.finish, sum_of(row, column), row, product_.column_of(column));
    });
  }

  const SkinnyGemmWorkspace& workspace_;
  const Operands& operands_;
  Product product_;
};

template <typename T, bool aligned>
using ElementProduct = SkinnyProduct<T, 16, max_skinny_rows, aligned>;
template <typename T, int bits, int rows>
using CodeProduct = SkinnyProduct<T, bits, rows, true>;

template <typename T, bool aligned>
__global__ void __launch_bounds__(32 * product_warps, 3)
    skinny_product(PreviousKernel previous, SkinnyGemmArguments arguments, SkinnyGemmWorkspace workspace) {
  const SkinnyOperands<T, 16> operands{arguments};
  ElementProduct<T, aligned>(operands, workspace).run(previous);
}
template <typename T, int bits, int rows>
__global__ void __launch_bounds__(32 * product_warps, rows <= 16 ? 3 : 2)
    code_product(PreviousKernel previous, SkinnyGemmArguments arguments, SkinnyGemmWorkspace workspace) {
  const SkinnyOperands<T, bits> operands{arguments};
  CodeProduct<T, bits, rows>(operands, workspace).run(previous);
}

}  // namespace

bool skinny_gemm(Stream stream, const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  const auto launch_product = [&](auto kernel, int columns, size_t bytes) {
    launch_early(kernel, {(a.n + columns - 1) / columns, slices_of(a)}, 32 * product_warps, bytes, stream, a,
                 workspace);
  };
  return a.m <= (a.weight ? max_skinny_rows : max_code_rows) &&
         with_tensor_core_type(a.dtype, [&]<typename T>(T) {
           if (a.weight)
             return with_alignment(vectors_fit(a.k, a.x, a.weight), [&](auto aligned) {
               using Product = ElementProduct<T, aligned()>;
               launch_product(skinny_product<T, aligned()>, Product::columns, Product::shared_bytes);
             });
           with_constant<4, 8>(a.finish.codes.bits, [&](auto bits) {
             with_tile_rows(a.m, [&](auto rows) {
               using Product = CodeProduct<T, bits(), rows()>;
               launch_product(code_product<T, bits(), rows()>, Product::columns, Product::shared_bytes);
             });
           });
         });
}

}  // namespace maniple::cuda
