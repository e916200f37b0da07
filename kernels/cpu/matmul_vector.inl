// A Kernel for multiply_block on vector registers: multiplies broadcast activations with columns of a panel.
//
// A Vector type names one instruction set and element type:
//   Sum, Weight, Activation             a register of sums; results of weight() and activation()
//   lanes                               columns in a Sum
//   registers                           sums that fit into the register file
//   zero()  store(to, sum)  weight(units)  activation(unit)  dot(sum, weight, activation)

#include <kernels/cpu/matmul_block.inl>

namespace maniple::cpu {
namespace {

template <int number>
struct Unit {
  static constexpr int index = number;
};

// f(Unit<0>), ..., f(Unit<count - 1>)
template <int count, typename F>
[[gnu::always_inline]] inline void for_units(F f) {
  if constexpr (count > 1) for_units<count - 1>(f);
  f(Unit<count - 1>{});
}

// Where a kernel takes its weights from. A Source has
//   units                        of activations that meet one word
//   Words, Zeros  load(words)  zeros(of a run, first column)      of the columns of a Sum
//   weight(words, zeros, unit)
template <typename Vector>
struct Stored {
  static constexpr int units = 1;
  using Words = typename Vector::Weight;
  struct Zeros {};
  static Zeros zeros(const uint8_t*, int64_t) { return {}; }
  static Words load(const uint32_t* words) { return Vector::weight(words); }
  static typename Vector::Weight weight(const Words& words, Zeros, Unit<0>) { return words; }
};

// panels: side by side, where few rows leave dot products waiting for each other; out is then [panels][rows][32].
template <typename Vector, int rows_in_tile, typename Source = Stored<Vector>, int panels = 1>
class VectorKernel {
 public:
  static constexpr int tile_rows = rows_in_tile, row_step = 1;

  void sum(const SliceTile& tile, float* out, PanelPrefetch& prefetch) {
    dispatch<tile_rows>(tile, out, prefetch);
  }

 private:
  // Vectors of one pass over a panel: as many as the registers hold for this number of rows.
  static constexpr int vectors_of_panel = panel_width / Vector::lanes;
  static constexpr int vectors_for(int rows) {
    int vectors = panels * vectors_of_panel;
    while (vectors > 1 && rows * vectors > Vector::registers) vectors /= 2;
    return vectors;
  }

  template <int rows>
  static void dispatch(const SliceTile& tile, float* out, PanelPrefetch& prefetch) {
    if constexpr (rows > 0) {
      if (tile.rows != rows) return dispatch<rows - 1>(tile, out, prefetch);
      constexpr int vectors = vectors_for(rows);
      static_assert(panels == 1 || vectors == panels * vectors_of_panel);
      for (int column = 0; column < panels * panel_width; column += vectors * Vector::lanes)
        sum_columns<rows, vectors>(tile, column, out + column, prefetch);
    }
  }

  template <int rows, int vectors>
  [[gnu::noinline]] static void sum_columns(const SliceTile& tile, int column, float* out,
                                            PanelPrefetch& prefetch) {
    typename Vector::Sum sums[rows][vectors];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sums[r][v] = Vector::zero();
    const uint32_t* x = tile.x;
    const uint32_t* weights = tile.weights + column;
    // Of vector v, where panels are `step` apart.
    const auto offset = [](int v, int64_t step) __attribute__((always_inline)) {
      return v / vectors_of_panel * step + v % vectors_of_panel * Vector::lanes;
    };
    typename Source::Zeros zeros[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v)
      zeros[v] = Source::zeros(tile.zeros, column + offset(v, tile.zero_step));
    const auto accumulate = [&]() __attribute__((always_inline)) {
      typename Source::Words words[vectors];
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) words[v] = Source::load(weights + offset(v, tile.panel_step));
      for_units<Source::units>([&](auto unit) __attribute__((always_inline)) {
        typename Vector::Weight weight[vectors];
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) weight[v] = Source::weight(words[v], zeros[v], unit);
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          const typename Vector::Activation value = Vector::activation(x + r);
#pragma GCC unroll 16
          for (int v = 0; v < vectors; ++v) sums[r][v] = Vector::dot(sums[r][v], weight[v], value);
        }
        x += rows;
      });
      weights += panel_width;
    };
    int64_t left = tile.units;
    while (left > 0) {
      prefetch.step();
      int64_t units = left < PanelPrefetch::units_in_step ? left : PanelPrefetch::units_in_step;
      left -= units;
      for (; units > 0; --units) accumulate();
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v)
        Vector::store(out + r * panel_width + offset(v, rows * panel_width), sums[r][v]);
  }
};

}  // namespace
}  // namespace maniple::cpu
