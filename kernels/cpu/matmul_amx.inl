// A Kernel for multiply_block on tiles of 16 rows by 32 K: two tiles of activations against two of weights.
// Tiles is AmxTiles, or in the tests a plain C++ class with the same members.

#include <kernels/cpu/matmul_block.inl>

namespace maniple::cpu {
namespace {

template <typename Tiles>
class AmxKernel {
 public:
  static constexpr int tile_rows = 32, row_step = 16;

  void sum(const SliceTile& tile, float* out, PanelPrefetch& prefetch) {
    if (tile.rows > height)
      sum_rows<2>(tile, out, prefetch);
    else
      sum_rows<1>(tile, out, prefetch);
  }

 private:
  static constexpr int height = 16, depth = 16,
                       half = 16;  // rows of a tile, units of a row, columns of a tile
  static constexpr int64_t row_bytes = depth * 4;
  static constexpr int x_tile = 4, weight_tile = 6;  // 0..3 are sums: row half * 2 + column half

  template <int row_tiles>
  void sum_rows(const SliceTile& tile, float* out, PanelPrefetch& prefetch) {
    tiles_.template zero<0>();
    tiles_.template zero<1>();
    if constexpr (row_tiles == 2) {
      tiles_.template zero<2>();
      tiles_.template zero<3>();
    }
    const uint32_t* x = tile.x;
    const uint32_t* weights = tile.weights;
    for (int64_t unit = 0; unit < tile.units; unit += depth) {
      for (int units = depth; units > 0; units -= PanelPrefetch::units_in_step) prefetch.step();
      tiles_.template load<weight_tile>(weights, row_bytes);
      tiles_.template load<weight_tile + 1>(weights + depth * half, row_bytes);
      tiles_.template load<x_tile>(x, row_bytes);
      tiles_.template dot<0, x_tile, weight_tile>();
      tiles_.template dot<1, x_tile, weight_tile + 1>();
      if constexpr (row_tiles == 2) {
        tiles_.template load<x_tile + 1>(x + height * depth, row_bytes);
        tiles_.template dot<2, x_tile + 1, weight_tile>();
        tiles_.template dot<3, x_tile + 1, weight_tile + 1>();
      }
      x += row_tiles * height * depth;
      weights += depth * panel_width;
    }
    constexpr int64_t stride = panel_width * 4;
    tiles_.template store<0>(out, stride);
    tiles_.template store<1>(out + half, stride);
    if constexpr (row_tiles == 2) {
      tiles_.template store<2>(out + height * panel_width, stride);
      tiles_.template store<3>(out + height * panel_width + half, stride);
    }
  }

  Tiles tiles_;
};

}  // namespace
}  // namespace maniple::cpu
