// The loops of a MatmulBlock around a kernel that sums one tile. The file of each instruction path includes
// them. Everything has internal linkage: the linker never merges code of different instruction sets, and the
// compiler vectorises the plain loops for each set.
//
// A Kernel has
//   tile_rows, row_step           of RowTiles
//   x_units                       of x that meet a unit of dense weights
//   tiles_at_once                 row tiles that meet a block of K of the weights one after the other
//   block_units                   of such a block, where there are several tiles
//   sum(tile, sums, prefetch)     one block of a slice, run after run, each summed from zero in ascending order
// A Sums says what the runs of the block are, and where the sums go ([panels][rows][32]):
//   runs()  units(run)  zeros(run)    how many; of one row of the weights; of the columns, where the kernel widens codes
//   one_run, scaled                   whether there is never another run; whether its products are scaled
//   begun()  run_begun()  run_ends()  of scaled ones: whether sums, or products of a run that is cut, go on; whether they are to be scaled now
//   at(row, column)                   where the sums of columns from `column` on go
//   choose(run, f)                    f(add), where add.columns(column)(row, products, sums) = sums + scaled products

#include <kernels/cpu/matmul_kernel.hpp>
#include <kernels/cpu/vector_lanes.hpp>

namespace maniple::cpu {
namespace {

// A block of a slice of K of a few rows against one panel.
struct SliceTile {
  const uint32_t* x = nullptr;
  const uint32_t* weights;
  int64_t first_row = 0;
  int rows = 0;
  int64_t panel_step = 0, zero_step = 0;  // from panel to panel, where the kernel takes some side by side
};

// Fetches the line that a kernel reads 2 KiB later, where `column` begins one. Called beside each load: the same lines fetched eight at once
// gained nothing (tests/bench/README.md).
inline void prefetch_ahead(const uint32_t* words, int column) {
  if (column % 16 == 0) __builtin_prefetch(words + 512, 0, 3);
}

// Prefetches the next panel into L2, a few cache lines at a time, while tiles pass over the current one.
class PanelPrefetch {
 public:
  PanelPrefetch(const uint32_t* panel, int64_t words, int64_t tiles)
      : next_(reinterpret_cast<const char*>(panel)),
        end_(next_ + (panel ? words * 4 : 0)),
        lines_((lines_in_step + tiles - 1) / tiles),
        for_one_tile_(tiles == 1) {}
  bool for_one_tile() const { return for_one_tile_; }
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
  bool for_one_tile_;
};

// A block of dense weights is one run. begun: the sums go on from those of the blocks before.
struct DenseSums {
  static constexpr bool one_run = true, scaled = false;
  float* sums;
  int64_t block_units;
  bool begun;

  int runs() const { return 1; }
  int64_t units(int) const { return block_units; }
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

constexpr int tree_levels = 8;  // max_slices in binary

// Row tiles that meet the weights of a block of K one after the other, and their sums. Taken are the next ones of `block` from `first` on.
template <typename Kernel>
class TileGroup {
 public:
  TileGroup(const MatmulBlock& block, int64_t first, int64_t row_units, SliceTile tile) {
    for (; count_ < Kernel::tiles_at_once && first < block.end_tile; ++first) {
      tile.first_row = block.tiles.first_row(first);
      tile.rows = static_cast<int>(block.tiles.first_row(first + 1) - tile.first_row);
      tile.x = block.x + tile.first_row * row_units;
      tiles_[count_++] = tile;
    }
  }
  // Units of a block of K. Tiles without company take slices whole.
  int64_t block_units() const {
    if constexpr (Kernel::tiles_at_once > 1)
      if (count_ > 1) return Kernel::block_units;
    return int64_t{1} << 62;
  }

  // sum_slice(slice, level): called in ascending order. A binary tree adds the slices, as a binary counter: a slice waits at its level
  // until its neighbour of the same size is summed. panels: side by side.
  template <typename SumSlice>
  void sum_slices(int slices, int panels, SumSlice sum_slice) {
    int waiting = 0;
    const auto add_neighbours = [&] {
      --waiting;
      for (int i = 0; i < count_; ++i)
        for (int at = 0; at < tiles_[i].rows * panels * panel_width; ++at)
          sums_[i][waiting - 1][at] += sums_[i][waiting][at];
    };
    for (int slice = 0; slice < slices; ++slice) {
      sum_slice(slice, waiting++);
      for (int done = slice + 1; done % 2 == 0; done /= 2) add_neighbours();
    }
    while (waiting > 1) add_neighbours();
  }

  // The next block of K, of so many units of x and of the weights: sum(tile, sums of the level).
  template <typename Sum>
  [[gnu::always_inline]] void sum_block(int level, int64_t x_units, int64_t units, Sum sum) {
    for (int i = 0; i < count_; ++i) {
      SliceTile& tile = tiles_[i];
      sum(tile, sums_[i][level]);
      tile.x += x_units * ((tile.rows + Kernel::row_step - 1) & -Kernel::row_step);
      tile.weights += units * panel_width;
    }
  }

  // finish(tile, its sums)
  template <typename Finish>
  void finish(Finish finish) {
    for (int i = 0; i < count_; ++i) finish(tiles_[i], sums_[i][0]);
  }

 private:
  int count_ = 0;
  SliceTile tiles_[Kernel::tiles_at_once];
  alignas(64) float sums_[Kernel::tiles_at_once][tree_levels][Kernel::tile_rows * panel_width];
};

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
  Kernel kernel;
  const int64_t row_units = block.slice_units * block.slices, panel_units = row_units * panel_width;
  constexpr int x_units = Kernel::x_units;
  for (int64_t column = 0; column < block.width; column += panel_width) {
    const uint32_t* panel = block.panels + column / panel_width * panel_units;
    const bool last = column + panel_width >= block.width;
    const int width = last ? static_cast<int>(block.width - column) : panel_width;
    const uint32_t* next = last ? block.next : panel + panel_units;
    PanelPrefetch prefetch(next, panel_units, block.end_tile - block.first_tile);
    for (int64_t first = block.first_tile; first < block.end_tile; first += Kernel::tiles_at_once) {
      TileGroup<Kernel> group(block, first, row_units * x_units, {.weights = panel});
      group.sum_slices(block.slices, 1, [&](int, int level) {
        for (int64_t unit = 0, units; unit < block.slice_units; unit += units) {
          const int64_t left = block.slice_units - unit;
          units = left < group.block_units() ? left : group.block_units();
          group.sum_block(level, units * x_units, units, [&](const SliceTile& tile, float* sums) {
            kernel.sum(tile, DenseSums{sums, units, unit > 0}, prefetch);
          });
        }
      });
      group.finish([&](const SliceTile& tile, float* sums) {
        finish_tile(sums, tile.rows, width, block.bias ? block.bias + column : nullptr, block, tile.first_row,
                    column);
      });
    }
  }
}

}  // namespace
}  // namespace maniple::cpu
