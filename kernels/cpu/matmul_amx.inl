// A Kernel for multiply_block out of tiles of 16 rows by 32 K: two of activations against two of weights.
// Tiles is AmxTiles, or plain C++ with the same members in the tests.

#include <kernels/cpu/matmul_block.inl>

namespace maniple::cpu {
namespace {

template <typename Tiles>
class AmxKernel {
 public:
  using Element = uint16_t;
  static constexpr int tile_rows = 32, row_step = 16;

  void sum(const SliceTile<Element>& tile, float* out, PanelPrefetch& prefetch) {
    if (tile.rows > height)
      sum_rows<2>(tile, out, prefetch);
    else
      sum_rows<1>(tile, out, prefetch);
  }

 private:
  static constexpr int height = 16, depth = 32, half = 16;  // rows of a tile, K of a tile, columns of a tile
  static constexpr int64_t row_bytes = 64;
  static constexpr int x_tile = 4, weight_tile = 6;  // 0..3 are sums: row half * 2 + column half

  template <int row_tiles>
  void sum_rows(const SliceTile<Element>& tile, float* out, PanelPrefetch& prefetch) {
    tiles_.template zero<0>();
    tiles_.template zero<1>();
    if constexpr (row_tiles == 2) {
      tiles_.template zero<2>();
      tiles_.template zero<3>();
    }
    const uint32_t* weights = tile.weights;
    for (int64_t k = 0; k < tile.columns; k += depth) {
      for (int units = depth / 2; units > 0; units -= PanelPrefetch::units_in_step) prefetch.step();
      tiles_.template load<weight_tile>(weights, row_bytes);
      tiles_.template load<weight_tile + 1>(weights + height * half, row_bytes);
      load_rows<0>(tile, k);
      tiles_.template dot<0, x_tile, weight_tile>();
      tiles_.template dot<1, x_tile, weight_tile + 1>();
      if constexpr (row_tiles == 2) {
        load_rows<1>(tile, k);
        tiles_.template dot<2, x_tile + 1, weight_tile>();
        tiles_.template dot<3, x_tile + 1, weight_tile + 1>();
      }
      weights += 2 * height * half;
    }
    constexpr int64_t stride = panel_width * 4;
    tiles_.template store<0>(out, stride);
    tiles_.template store<1>(out + half, stride);
    if constexpr (row_tiles == 2) {
      tiles_.template store<2>(out + height * panel_width, stride);
      tiles_.template store<3>(out + height * panel_width + half, stride);
    }
  }

  // Whole tiles come straight from x; fewer rows or fewer columns are padded with zeros, since x ends there.
  template <int row_tile>
  void load_rows(const SliceTile<Element>& tile, int64_t k) {
    const Element* x = tile.x + row_tile * height * tile.stride + k;
    const int rows = tile.rows - row_tile * height < height ? tile.rows - row_tile * height : height;
    const int64_t columns = tile.columns - k < depth ? tile.columns - k : depth;
    if (rows == height && columns == depth) {
      tiles_.template load<x_tile + row_tile>(x, tile.stride * 2);
      return;
    }
    Element(&padded)[height][depth] = padded_[k / depth % 2];
    for (int r = 0; r < height; ++r)
      for (int c = 0; c < depth; ++c)
        padded[r][c] = r < rows && c < columns ? x[r * tile.stride + c] : Element{0};
    tiles_.template load<x_tile + row_tile>(padded, row_bytes);
  }

  Tiles tiles_;
  alignas(64) Element padded_[2][height][depth];
};

}  // namespace
}  // namespace maniple::cpu
