// A Kernel for multiply_block on vector registers: multiplies broadcast activations with columns of a panel.
//
// A Vector type names one instruction set and element type:
//   Sum, Weight, Activation             a register of sums; results of weight() and activation()
//   lanes                               columns in a Sum
//   registers                           sums that fit into the register file
//   zero()  weight(units)  activation(unit)  dot(sum, weight, activation)

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

// panels: side by side, where few rows leave dot products waiting for each other.
template <typename Vector, int rows_in_tile, typename Source = Stored<Vector>, int panels = 1>
class VectorKernel {
 public:
  static constexpr int tile_rows = rows_in_tile, row_step = 1, x_units = Source::units, tiles_at_once = 1;

  template <typename Sums>
  void sum(const SliceTile& tile, const Sums& sums, PanelPrefetch& prefetch) {
    dispatch<tile_rows>(tile, sums, prefetch);
  }

 private:
  static constexpr int vectors_of_panel = panel_width / Vector::lanes;

  // Vectors of one pass over the panels: as many as the registers hold for so many rows of sums.
  static constexpr int vectors_for(int rows) {
    int vectors = panels * vectors_of_panel;
    while (vectors > 1 && rows * vectors > Vector::registers) vectors /= 2;
    return vectors;
  }
  // Of vector v of columns from a panel's first one on, where panels are `step` apart.
  static constexpr int64_t offset(int v, int64_t step) {
    return v / vectors_of_panel * step + v % vectors_of_panel * Vector::lanes;
  }

  template <int rows, typename Sums>
  static void dispatch(const SliceTile& tile, const Sums& sums, PanelPrefetch& prefetch) {
    if constexpr (rows > 0) {
      if (tile.rows != rows) return dispatch<rows - 1>(tile, sums, prefetch);
      constexpr int vectors = vectors_for(rows);
      if (Sums::one_run || sums.runs() == 1)
        for (int v = 0; v < panels * vectors_of_panel; v += vectors)
          sum_run<rows, vectors>(tile, v, sums, prefetch);
      else if constexpr (!Sums::one_run)
        sum_all_runs<rows>(tile, sums, prefetch);
    }
  }

  // Sums wait beside the products: there is room for half the rows, or for fewer vectors. A half loads less for a product, but widens
  // all codes again, and under ten rows its products wait for each other.
  template <int rows, typename Sums>
  static void sum_all_runs(const SliceTile& tile, const Sums& sums, PanelPrefetch& prefetch) {
    constexpr bool few_registers = Vector::registers < 16;
    if constexpr (!few_registers && rows >= 10 && Source::units == 1) {
      constexpr int half = (rows + 1) / 2;
      sum_runs<half, vectors_of_panel, rows>(tile, 0, sums, prefetch);
      sum_runs<rows - half, vectors_of_panel, rows, half>(tile, 0, sums, prefetch);
    } else {
      constexpr int vectors = vectors_for(few_registers ? rows : 2 * rows);
      for (int v = 0; v < panels * vectors_of_panel; v += vectors)
        sum_runs<rows, vectors>(tile, v, sums, prefetch);
    }
  }

  template <int rows, int vectors, typename Sums>
  [[gnu::noinline]] static void sum_run(const SliceTile& tile, int first, const Sums& sums,
                                        PanelPrefetch& prefetch) {
    Pass<rows, vectors> pass(tile, first);
    pass.multiply(sums.units(0), sums.zeros(0), prefetch);
    sums.choose(
        0, [&](const auto& add) __attribute__((always_inline)) {
#pragma GCC unroll 16
          for (int v = 0; v < vectors; ++v) {
            const int column = (first + v) * Vector::lanes;
            const auto added = add.columns(column);
#pragma GCC unroll 16
            for (int r = 0; r < rows; ++r) store(sums.at(r, column), added(r, pass.products[r][v], Floats{}));
          }
        });
  }

  // Products and sums lie in registers; where these are few, sums wait on the stack for the end of a run.
  template <int rows, int vectors, int of_rows = rows, int first_row = 0, typename Sums>
  [[gnu::noinline]] static void sum_runs(const SliceTile& tile, int first, const Sums& sums,
                                         PanelPrefetch& prefetch) {
    Pass<rows, vectors, of_rows> pass(tile, first, first_row);
    Floats sum[rows][vectors] = {};
    for (int run = 0; run < sums.runs(); ++run) {
      pass.multiply(sums.units(run), sums.zeros(run), prefetch);
      sums.choose(
          run, [&](const auto& add) __attribute__((always_inline)) {
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) {
              const auto added = add.columns((first + v) * Vector::lanes);
#pragma GCC unroll 16
              for (int r = 0; r < rows; ++r) sum[r][v] = added(first_row + r, pass.products[r][v], sum[r][v]);
            }
          });
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) store(sums.at(first_row + r, (first + v) * Vector::lanes), sum[r][v]);
  }

  // Some columns of the panels and rows of a tile of `of_rows`, from the first row of a slice to its last.
  template <int rows, int vectors, int of_rows = rows>
  struct Pass {
    // Then a line ahead is enough for one tile. Where passes share lines, the second one finds them in L2.
    static constexpr bool reads_lines_once = vectors >= vectors_of_panel && rows == of_rows;

    Pass(const SliceTile& tile, int first, int first_row = 0)
        : tile_(tile),
          first_(first),
          x_(tile.x + first_row),
          weights_(tile.weights + offset(first, tile.panel_step)) {}

    [[gnu::always_inline]] void multiply(int64_t units, const uint8_t* of_columns, PanelPrefetch& prefetch) {
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) products[r][v] = Vector::zero();
      typename Source::Zeros zeros[vectors];
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v)
        zeros[v] = Source::zeros(of_columns, offset(first_, tile_.zero_step) + offset(v, tile_.zero_step));
      while (units > 0) {
        if (!(reads_lines_once && prefetch.for_one_tile())) prefetch.step();
        int64_t in_step = units < PanelPrefetch::units_in_step ? units : PanelPrefetch::units_in_step;
        units -= in_step;
        for (; in_step > 0; --in_step) multiply_word(zeros);
      }
    }
    [[gnu::always_inline]] void multiply_word(const typename Source::Zeros* zeros) {
      typename Source::Words words[vectors];
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) {
        const uint32_t* const at = weights_ + offset(v, tile_.panel_step);
        words[v] = Source::load(at);
        if (reads_lines_once) prefetch_ahead(at, v * Vector::lanes);
      }
      for_units<Source::units>([&](auto unit) __attribute__((always_inline)) {
        typename Vector::Weight weight[vectors];
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) weight[v] = Source::weight(words[v], zeros[v], unit);
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          const typename Vector::Activation value = Vector::activation(x_ + r);
#pragma GCC unroll 16
          for (int v = 0; v < vectors; ++v) products[r][v] = Vector::dot(products[r][v], weight[v], value);
        }
        x_ += of_rows;
      });
      weights_ += panel_width;
    }

    typename Vector::Sum products[rows][vectors];

   private:
    const SliceTile& tile_;
    const int first_;  // vector
    const uint32_t* x_;
    const uint32_t* weights_;
  };
};

}  // namespace
}  // namespace maniple::cpu
