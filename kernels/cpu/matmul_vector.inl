// A Kernel for multiply_block out of vector registers: broadcast activations against columns of a panel.
//
// A Vector type names one instruction set and element type:
//   Element, Sum, Weight, Activation    of x; a register of sums; what weight() and activation() give
//   lanes                               columns in a Sum
//   registers                           sums that fit into the register file
//   group                               K in one 32-bit unit: 2 for bf16, 1 for fp32
//   zero()  store(to, sum)  weight(units)  activation(x)  last_activation(x)  dot(sum, weight, activation)
// last_activation reads one element where a unit holds two: nothing behind a row of x may reach a result.

#include <kernels/cpu/matmul_block.inl>

namespace maniple::cpu {
namespace {

template <typename Vector, int rows_in_tile>
class VectorKernel {
 public:
  using Element = typename Vector::Element;
  static constexpr int tile_rows = rows_in_tile, row_step = 1;

  void sum(const SliceTile<Element>& tile, float* out, PanelPrefetch& prefetch) {
    dispatch<tile_rows>(tile, out, prefetch);
  }

 private:
  // Vectors of one pass over a panel: as many as the registers hold for this number of rows.
  static constexpr int vectors_for(int rows) {
    int vectors = panel_width / Vector::lanes;
    while (vectors > 1 && rows * vectors > Vector::registers) vectors /= 2;
    return vectors;
  }

  template <int rows>
  static void dispatch(const SliceTile<Element>& tile, float* out, PanelPrefetch& prefetch) {
    if constexpr (rows > 0) {
      if (tile.rows != rows) return dispatch<rows - 1>(tile, out, prefetch);
      constexpr int vectors = vectors_for(rows);
      for (int column = 0; column < panel_width; column += vectors * Vector::lanes)
        sum_columns<rows, vectors>(tile, column, out + column, prefetch);
    }
  }

  template <int rows, int vectors>
  [[gnu::noinline]] static void sum_columns(const SliceTile<Element>& tile, int column, float* out,
                                            PanelPrefetch& prefetch) {
    constexpr int near = 3;  // rows addressed from one pointer: few enough pointers stay in registers
    constexpr int pointers = (rows + near - 1) / near;
    const Element* x[pointers];
    for (int p = 0; p < pointers; ++p) x[p] = tile.x + p * near * tile.stride;
    typename Vector::Sum sums[rows][vectors];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sums[r][v] = Vector::zero();
    const uint32_t* weights = tile.weights + column;
    const auto accumulate = [&](auto&& activation) __attribute__((always_inline)) {
      typename Vector::Weight weight[vectors];
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) weight[v] = Vector::weight(weights + v * Vector::lanes);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const typename Vector::Activation value = activation(x[r / near] + (r % near) * tile.stride);
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) sums[r][v] = Vector::dot(sums[r][v], weight[v], value);
      }
#pragma GCC unroll 16
      for (int p = 0; p < pointers; ++p) x[p] += Vector::group;
      weights += panel_width;
    };
    const auto whole = [](const Element* at) __attribute__((always_inline)) {
      return Vector::activation(at);
    };
    int64_t left = tile.columns / Vector::group;
    while (left > 0) {
      prefetch.step();
      int64_t units = left < PanelPrefetch::units_in_step ? left : PanelPrefetch::units_in_step;
      left -= units;
      for (; units > 0; --units) accumulate(whole);
    }
    if (tile.columns % Vector::group != 0)
      accumulate([](const Element* at)
                     __attribute__((always_inline)) { return Vector::last_activation(at); });
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) Vector::store(out + r * panel_width + v * Vector::lanes, sums[r][v]);
  }
};

}  // namespace
}  // namespace maniple::cpu
