// A product of few rows by tiles and slices of k. Operands (TileProduct) also have
//   float finished(float sum, int row, int column): before gating.
#pragma once

#include <kernels/cuda/product_tiles.hpp>
#include <kernels/cuda/reductions.hpp>
#include <kernels/cuda/skinny_gemm.hpp>

#include <algorithm>

namespace maniple::cuda {

// Few columns leave multiprocessors idle: then k is cut into slices, each at least one turn of every warp.
inline int slices_of(int n, int k) {
  const int tiles = (n + columns_for(1) - 1) / columns_for(1);
  return std::max(1, std::min(skinny_arrivals / tiles, k / (product_warps * turn_k)));
}

template <typename Operands, int rows, int columns, bool aligned>
class SkinnyProduct {
 public:
  using Product = TileProduct<Operands, rows, columns, aligned>;
  static constexpr size_t shared_bytes = Product::Sizes::bytes + sizeof(int);

  // operands: an object of the kernel. One inside this object would make the compiler keep both in local memory.
  __device__ SkinnyProduct(const Operands& operands, const SkinnyGemmArguments& a,
                           const SkinnyGemmWorkspace& workspace)
      : a_(a), workspace_(workspace), operands_(operands), product_(operands, device::block_index().x) {}

  // The first copies of the weight, which no kernel writes, do not wait.
  __device__ void run(device::PreviousKernel previous) {
    const int slices = device::grid_size().y;
    product_.multiply(device::block_index().y, slices, [&] { device::wait_for(previous); });
    if (slices == 1) return write_results(Product::sum_of_warps);
    for (int i = device::thread_index(); i < a_.m * columns; i += device::block_threads()) {
      const int row = i / columns, column = i % columns;
      if (product_.column_of(column) < a_.n)
        *partial(device::block_index().y, row, column) = Product::sum_of_warps(row, column);
    }
    int& before = *reinterpret_cast<int*>(device::shared_memory() + shared_bytes - sizeof(int));
    if (!is_last_to_arrive(workspace_.arrivals + device::block_index().x, slices, before)) return;
    device::memory_fence();
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
      return operands_.finished(sum_of(row, column), row, product_.column_of(column));
    });
  }

  const SkinnyGemmArguments& a_;
  const SkinnyGemmWorkspace& workspace_;
  const Operands& operands_;
  Product product_;
};

}  // namespace maniple::cuda
