// The loops of a MatmulBlock around a kernel that sums one tile. The file of each instruction path includes
// them. Everything has internal linkage: the linker never merges code of different instruction sets, and the
// compiler vectorises the plain loops for each set.
//
// A Kernel has
//   tile_rows, row_step           of RowTiles
//   sum(tile, sums, prefetch)     one slice of K, run after run, each summed from zero in ascending order
// A Sums says what the runs of the slice are, and where the sums go ([panels][rows][32]):
//   runs()  units(run)  zeros(run)    how many; of one row of the weights; of the columns, where the kernel widens codes
//   one_run, scaled                   whether there is never another run; whether its products are scaled
//   at(row, column)                   where the sums of columns from `column` on go
//   choose(run, f)                    f(add), where add.columns(column)(row, products, sums) = sums + scaled products

#include <kernels/cpu/matmul_kernel.hpp>
#include <kernels/cpu/vector_lanes.hpp>

namespace maniple::cpu {
namespace {

// One slice of K of a few rows against one panel.
struct SliceTile {
  const uint32_t* x;
  const uint32_t* weights;
  int rows;
  int64_t panel_step = 0, zero_step = 0;  // from panel to panel, where the kernel takes some side by side
};

// Prefetches the next panel into L2, a few cache lines at a time, while the kernel works on the current one.
class PanelPrefetch {
 public:
  // at_once: panels that the kernel works on side by side.
  PanelPrefetch(const uint32_t* panel, int64_t units, int64_t tiles, int at_once = 1)
      : next_(reinterpret_cast<const char*>(panel)),
        end_(next_ + units * 4),
        lines_((lines_in_step * at_once + tiles - 1) / tiles) {}
  // Called once for every units_in_step units of 32 rows.
  void step() {
    for (int64_t line = 0; line < lines_ && next_ < end_; ++line, next_ += 64)
      __builtin_prefetch(next_, 0, 2);
  }
  static constexpr int units_in_step = 4;

 private:
  static constexpr int64_t lines_in_step = units_in_step * panel_width * 4 / 64;
  const char* next_;
  const char* end_;
  int64_t lines_;
};

// A slice of dense weights is one run.
struct DenseSums {
  static constexpr bool one_run = true, scaled = false;
  float* sums;
  int64_t slice_units;

  int runs() const { return 1; }
  int64_t units(int) const { return slice_units; }
  const uint8_t* zeros(int) const { return nullptr; }
  float* at(int row, int column) const { return sums + row * panel_width + column; }
  template <typename F>
  [[gnu::always_inline]] void choose(int, F f) const {
    f(*this);
  }
  [[gnu::always_inline]] auto columns(int) const {
    return [](int, auto products, auto) __attribute__((always_inline)) { return products; };
  }
};

inline void add_tile(float* sum, const float* other, int elements) {
  for (int i = 0; i < elements; ++i) sum[i] += other[i];
}

constexpr int tree_levels = 8;  // max_slices in binary

// Adds the slices by a binary tree, as a binary counter: a tile waits until its neighbour of the same size is
// summed. The result is in tiles[0]. sum_slice(slice, tile): called in ascending order.
template <int tile_rows, typename SumSlice>
void sum_slices(int slices, int rows, float (*tiles)[tile_rows * panel_width], SumSlice sum_slice) {
  int waiting = 0;
  const auto add_neighbours = [&] {
    --waiting;
    add_tile(tiles[waiting - 1], tiles[waiting], rows * panel_width);
  };
  for (int slice = 0; slice < slices; ++slice) {
    sum_slice(slice, tiles[waiting++]);
    for (int done = slice + 1; done % 2 == 0; done /= 2) add_neighbours();
  }
  while (waiting > 1) add_neighbours();
}

template <typename Element>
void store_row(const float* sums, int width, Element* to) {
  Element last[panel_width];
  Element* const at = width == panel_width ? to : last;
  for (int c = 0; c < panel_width; c += lanes) store_elements(at + c, load<Floats>(sums + c));
  if (width < panel_width) __builtin_memcpy(to, last, static_cast<size_t>(width) * sizeof(Element));
}

// Adds the bias, rounds once and stores `width` columns.
inline void finish_tile(float* sums, int rows, int width, const float* bias, const MatmulBlock& block,
                        int64_t row, int64_t column) {
  for (int r = 0; r < rows; ++r) {
    float* sum = sums + r * panel_width;
    if (bias)
      for (int c = 0; c < width; ++c) sum[c] += bias[c];
    const int64_t at = (row + r) * block.out_stride + column;
    if (block.out_is_bf16)
      store_row(sum, width, static_cast<uint16_t*>(block.out) + at);
    else
      store_row(sum, width, static_cast<float*>(block.out) + at);
  }
}

template <typename Kernel>
void multiply_block(const MatmulBlock& block) {
  alignas(64) float tiles[tree_levels][Kernel::tile_rows * panel_width];
  Kernel kernel;
  const int64_t row_units = block.slice_units * block.slices, panel_units = row_units * panel_width;
  for (int64_t column = 0; column < block.width; column += panel_width) {
    const uint32_t* panel = block.panels + column / panel_width * panel_units;
    const bool last = column + panel_width >= block.width;
    const int width = last ? static_cast<int>(block.width - column) : panel_width;
    const uint32_t* next = last ? block.next : panel + panel_units;
    PanelPrefetch prefetch(next, next ? panel_units : 0, block.end_tile - block.first_tile);
    for (int64_t t = block.first_tile; t < block.end_tile; ++t) {
      const int64_t row = block.tiles.first_row(t), end = block.tiles.first_row(t + 1);
      SliceTile tile{block.x + row * row_units, panel, static_cast<int>(end - row)};
      const int64_t padded_rows = (tile.rows + Kernel::row_step - 1) & -Kernel::row_step;
      sum_slices<Kernel::tile_rows>(block.slices, tile.rows, tiles, [&](int, float* sums) {
        kernel.sum(tile, DenseSums{sums, block.slice_units}, prefetch);
        tile.x += block.slice_units * padded_rows;
        tile.weights += block.slice_units * panel_width;
      });
      finish_tile(tiles[0], tile.rows, width, block.bias ? block.bias + column : nullptr, block, row, column);
    }
  }
}

}  // namespace
}  // namespace maniple::cpu
