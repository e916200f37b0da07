#include <kernels/cuda/product_tiles.hpp>
#include <kernels/cuda/skinny_gemm.hpp>

#include <algorithm>

namespace maniple::cuda {

using namespace device;

namespace {

// Few columns leave multiprocessors idle: then k is cut into slices, each at least one turn of every warp.
int slices_of(int n, int k) {
  const int tiles = (n + columns_for(1) - 1) / columns_for(1);
  return std::max(1, std::min(skinny_arrivals / tiles, k / (product_warps * turn_k)));
}

// Reads the arguments where they lie: no register holds them.
template <typename T>
struct SkinnyOperands {
  using Element = T;
  static constexpr bool gathers = false;
  const SkinnyGemmArguments& a;

  __device__ const T* weight() const { return static_cast<const T*>(a.weight); }
  __device__ const T* x(int row) const {
    return static_cast<const T*>(a.x) + static_cast<int64_t>(row) * a.k;
  }
  __device__ int rows() const { return a.m; }
  __device__ int n() const { return a.n; }
  __device__ int k() const { return a.k; }
  __device__ bool gated() const { return a.gated; }
  __device__ int width() const { return a.gated ? a.n / 2 : a.n; }
};

template <typename T, int rows, int columns, bool aligned>
class SkinnyGemm {
 public:
  using Operands = SkinnyOperands<T>;
  using Product = TileProduct<Operands, rows, columns, aligned>;
  static constexpr size_t shared_bytes = Product::Sizes::bytes + sizeof(int);

  __device__ SkinnyGemm(const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace)
      : a_(a), workspace_(workspace), operands_{a}, product_(operands_, block_index().x) {}

  __device__ void run() {
    const int slices = grid_size().y;
    product_.multiply(block_index().y, slices);
    if (slices == 1) return write_results(Product::sum_of_warps);
    for (int i = thread_index(); i < a_.m * columns; i += block_threads()) {
      const int row = i / columns, column = i % columns;
      if (product_.column_of(column) < a_.n)
        *partial(block_index().y, row, column) = Product::sum_of_warps(row, column);
    }
    if (!is_last_to_arrive()) return;
    memory_fence();
    write_results([&](int row, int column) {
      float sum = 0;
      for (int slice = 0; slice < slices; ++slice) sum += *partial(slice, row, column);
      return sum;
    });
  }

 private:
  __device__ float* partial(int slice, int row, int column) const {
    return workspace_.partials + (static_cast<int64_t>(slice) * a_.m + row) * a_.n +
           product_.column_of(column);
  }

  // Calls sum_of(row, column of the block).
  template <typename F>
  __device__ void write_results(F sum_of) const {
    product_.write(a_.out, a_.out_type, [&](int row, int column) {
      return sum_of(row, column) + (a_.bias ? a_.bias[product_.column_of(column)] : 0);
    });
  }

  // Whether this block is the last of the slices of these columns. The counter returns to zero.
  __device__ bool is_last_to_arrive() const {
    int& before = *reinterpret_cast<int*>(shared_memory() + shared_bytes - sizeof(int));
    memory_fence();
    synchronize_block();
    if (thread_index() == 0) {
      int32_t* const arrivals = workspace_.arrivals + block_index().x;
      before = atomic_add(arrivals, 1);
      if (before == grid_size().y - 1) *arrivals = 0;
    }
    synchronize_block();
    return before == grid_size().y - 1;
  }

  const SkinnyGemmArguments& a_;
  const SkinnyGemmWorkspace& workspace_;
  const Operands operands_;
  Product product_;
};

template <typename T, int rows, int columns, bool aligned>
__global__ void __launch_bounds__(32 * product_warps, rows <= 16 ? 3 : 2)
    skinny_product(SkinnyGemmArguments arguments, SkinnyGemmWorkspace workspace) {
  SkinnyGemm<T, rows, columns, aligned>(arguments, workspace).run();
}

template <typename T, int rows>
void launch_skinny(Stream stream, const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  constexpr int columns = columns_for(rows);
  const bool aligned =
      a.k % 8 == 0 && (reinterpret_cast<uintptr_t>(a.x) | reinterpret_cast<uintptr_t>(a.weight)) % 16 == 0;
  launch(aligned ? skinny_product<T, rows, columns, true> : skinny_product<T, rows, columns, false>,
         {(a.n + columns - 1) / columns, slices_of(a.n, a.k)}, 32 * product_warps,
         SkinnyGemm<T, rows, columns, true>::shared_bytes, stream, a, workspace);
}

template <typename T>
void launch_skinny(Stream stream, const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  if (a.m <= 8) return launch_skinny<T, 8>(stream, a, workspace);
  if (a.m <= 16) return launch_skinny<T, 16>(stream, a, workspace);
  if (a.m <= 32) return launch_skinny<T, 32>(stream, a, workspace);
  launch_skinny<T, 64>(stream, a, workspace);
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
