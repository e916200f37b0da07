// A Kernel for multiply_block on tiles of 16 rows by 16 units of K: two tiles of activations against two of weights.
// Tiles is AmxTiles, or in the tests a plain C++ class with the same members.

#include <kernels/cpu/matmul_widen.inl>

namespace maniple::cpu {
namespace {

// integers: units are four codes, signed in x and unsigned in the weights, and sums are int32; else bf16 pairs and fp32.
template <typename Tiles, bool integers = false>
class AmxKernel {
 public:
  static constexpr int tile_rows = 32, row_step = 16, x_units = 1;
  // A block of weights (32 KiB) stays in the first cache while tiles pass: weights and x together are 64 bytes a cycle, which the second
  // one does not sustain. The sums of a slice go on from memory: the same bits for any number of tiles.
  static constexpr int tiles_at_once = 4;
  static constexpr int64_t block_units = 256;

  template <typename Sums>
  void sum(SliceTile tile, const Sums& sums, PanelPrefetch& prefetch) {
    if constexpr (!Sums::scaled)
      return sum_run(tile, sums.units(0), sums.at(0, 0), sums.begun, prefetch);
    else
      sum_runs(tile, sums, prefetch);
  }

 private:
  static constexpr int height = 16, depth = 16,
                       half = 16;  // rows of a tile, units of a row, columns of a tile
  static constexpr int64_t row_bytes = depth * 4;
  static constexpr int x_tile = 4, weight_tile = 6;  // 0..3 are sums: row half * 2 + column half

  template <int sum, int x, int weights>
  void dot() {
    if constexpr (integers)
      tiles_.template dot_codes<sum, x, weights>();
    else
      tiles_.template dot<sum, x, weights>();
  }

  template <typename Sums>
  void sum_runs(SliceTile tile, const Sums& sums, PanelPrefetch& prefetch) {
    const int64_t padded_rows = (tile.rows + row_step - 1) & -row_step;
    for (int run = 0; run < sums.runs(); ++run) {
      const bool begun = sums.begun() || run > 0;
      float* const products = begun ? products_ : sums.at(0, 0);
      sum_run(tile, sums.units(run), products, sums.run_begun(), prefetch);
      if (!sums.run_ends()) return;
      tile.x += sums.units(run) * padded_rows;
      tile.weights += sums.units(run) * panel_width;
      sums.choose(run, [&](const auto& add) {
        for (int column = 0; column < panel_width; column += lanes) {
          const auto added = add.columns(column);
          for (int r = 0; r < tile.rows; ++r) {
            float* const to = sums.at(r, column);
            store(to, added(r, load<Floats>(products + r * panel_width + column),
                            begun ? load<Floats>(to) : Floats{}));
          }
        }
      });
    }
  }

  void sum_run(const SliceTile& tile, int64_t units, float* out, bool begun, PanelPrefetch& prefetch) {
    if (tile.rows > height)
      sum_rows<2>(tile, units, out, begun, prefetch);
    else
      sum_rows<1>(tile, units, out, begun, prefetch);
  }

  template <int sum>
  void begin(const float* from, bool begun) {
    if (begun)
      tiles_.template load<sum>(from, panel_width * 4);
    else
      tiles_.template zero<sum>();
  }

  template <int row_tiles>
  void sum_rows(const SliceTile& tile, int64_t units, float* out, bool begun, PanelPrefetch& prefetch) {
    begin<0>(out, begun);
    begin<1>(out + half, begun);
    if constexpr (row_tiles == 2) {
      begin<2>(out + height * panel_width, begun);
      begin<3>(out + height * panel_width + half, begun);
    }
    const uint32_t* x = tile.x;
    const uint32_t* weights = tile.weights;
    for (int64_t unit = 0; unit < units; unit += depth) {
      for (int step = 0; step < depth; step += PanelPrefetch::units_in_step) prefetch.step();
      tiles_.template load<weight_tile>(weights, row_bytes);
      tiles_.template load<weight_tile + 1>(weights + depth * half, row_bytes);
      tiles_.template load<x_tile>(x, row_bytes);
      dot<0, x_tile, weight_tile>();
      dot<1, x_tile, weight_tile + 1>();
      if constexpr (row_tiles == 2) {
        tiles_.template load<x_tile + 1>(x + height * depth, row_bytes);
        dot<2, x_tile + 1, weight_tile>();
        dot<3, x_tile + 1, weight_tile + 1>();
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
  alignas(64) float products_[tile_rows * panel_width];
};

struct WidenedPair {
  Floats even, odd;
};
inline Words words_of(const WidenedPair& pair) { return bf16_pairs(pair.even, pair.odd); }
#ifdef __AVX512F__
inline Words words_of(__m512i pairs) { return (Words)pairs; }
#endif

// Sums few rows in vectors, in the order of tiles (amx_tile.hpp): widening codes into memory takes longer than the products of these rows.
template <typename Source>
class FewRows {
 public:
  static constexpr int tile_rows = 32, row_step = 16, x_units = Source::units, tiles_at_once = 1,
                       most_rows = 6;

  // Tiles take subnormals for zero, in and out. There are none where no input lies between 0 and 2^-100: every product is a multiple of
  // 2^-116, and so is every sum.
  static bool has_bits_of_tiles(const CodeBlock& block, int64_t rows) {
    using Values [[gnu::vector_size(4 * lanes)]] = uint16_t;
    constexpr uint16_t magnitude = 0x7fff, one = 1, below = ((127 - 100) << 7) - 1;
    const uint32_t* x = block.x + block.tiles.first_row(block.first_tile) * block.row_units;
    Values tiny{};
    for (int64_t unit = 0; unit < block.row_units; unit += depth, x += row_step * depth)
      for (int64_t i = 0; i < rows * depth; i += lanes)
        tiny |= (Values)((load<Values>(x + i) & magnitude) - one < Values{} + below);
    uint16_t any = 0;
    for (int i = 0; i < 2 * lanes; ++i) any |= tiny[i];
    return any == 0;
  }
  template <typename Sums>
  void sum(const SliceTile& tile, const Sums& sums, PanelPrefetch&) {
    dispatch<most_rows>(tile, sums);
  }

 private:
  static constexpr int64_t depth = 16, words_of_depth = depth / x_units;

  template <int rows, typename Sums>
  static void dispatch(const SliceTile& tile, const Sums& sums) {
    if constexpr (rows > 0) {
      if (tile.rows != rows) return dispatch<rows - 1>(tile, sums);
      constexpr int vectors = rows > 2 ? 1 : 2;
      for (int column = 0; column < panel_width; column += vectors * lanes)
        sum_runs<rows, vectors>(tile, column, sums);
    }
  }

  template <int rows, int vectors, typename Sums>
  [[gnu::noinline]] static void sum_runs(const SliceTile& tile, int column, const Sums& sums) {
    const uint32_t* x = tile.x;
    const uint32_t* weights = tile.weights + column;
    Floats sum[rows][vectors] = {};
    for (int run = 0; run < sums.runs(); ++run) {
      typename Source::Zeros zeros[vectors];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) zeros[v] = Source::zeros(sums.zeros(run), column + v * lanes);
      Floats products[rows][vectors] = {};
      for (int64_t words = sums.units(run); words > 0; words -= words_of_depth) {
        add_products(x, weights, zeros, products);
        x += row_step * depth, weights += words_of_depth * panel_width;
      }
      sums.choose(
          run, [&](const auto& add) __attribute__((always_inline)) {
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) {
              const auto added = add.columns(column + v * lanes);
#pragma GCC unroll 16
              for (int r = 0; r < rows; ++r) sum[r][v] = added(r, products[r][v], sum[r][v]);
            }
          });
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) store(sums.at(r, column + v * lanes), sum[r][v]);
  }

  template <int rows, int vectors>
  [[gnu::always_inline]] static void add_products(const uint32_t* x, const uint32_t* weights,
                                                  const typename Source::Zeros (&zeros)[vectors],
                                                  Floats (&products)[rows][vectors]) {
    alignas(64) float inputs[rows][2][depth];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
      for (int pair = 0; pair < depth; pair += lanes) {
        const auto pairs = load<Words>(x + r * depth + pair);
        store(&inputs[r][0][pair], pairs << 16);
        store(&inputs[r][1][pair], pairs & 0xffff0000u);
      }
    asm("" : "+m"(inputs));  // else gcc takes the lanes out of registers again, which is slower
    Floats even[rows][vectors] = {}, odd[rows][vectors] = {};
#pragma GCC unroll 8
    for (int word = 0; word < words_of_depth; ++word) {
      typename Source::Words words[vectors];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        const uint32_t* const at = weights + word * panel_width + v * lanes;
        words[v] = Source::load(at);
        prefetch_ahead(at, v * lanes);
      }
      for_units<x_units>([&](auto pair) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
          const auto weight = Source::weight(words[v], zeros[v], pair);
#pragma GCC unroll 16
          for (int r = 0; r < rows; ++r) {
            const auto at = word * x_units + pair.index;
            even[r][v] = multiply_add(weight.even, broadcast(inputs[r][0][at]), even[r][v]);
            odd[r][v] = multiply_add(weight.odd, broadcast(inputs[r][1][at]), odd[r][v]);
          }
        }
      });
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) products[r][v] += even[r][v] + odd[r][v];
  }
};

// Codes of few rows are widened in registers, by the Source of lanes; else into the order of tiles.
template <typename Tiles, typename Source, typename Lanes>
struct AmxProducts {
  using Kernel = AmxKernel<Tiles>;
  using Direct = FewRows<CodesToPairs<Lanes, WidenedPair>>;
  using Paired = Kernel;
  static constexpr int paired_rows = 0, x_units = Source::units;
  static constexpr bool integers = false;

  static bool direct(const CodeBlock& block, int64_t rows) {
    return rows <= Direct::most_rows && Direct::has_bits_of_tiles(block, rows);
  }
  // count: whole depths of a tile, as packed_codes pads runs.
  static void widen(const uint32_t* words, const uint8_t* zeros, int64_t count, uint32_t* to) {
    constexpr int64_t depth = 16, half = 16, words_of_depth = depth / x_units;
    for (int column = 0; column < panel_width; column += lanes) {
      const auto zero = Source::zeros(zeros, column);
      uint32_t* columns = to + column / half * half * depth + column % half;
      for (int64_t first = 0; first < count; first += words_of_depth, columns += depth * panel_width)
#pragma GCC unroll 8
        for (int64_t word = 0; word < words_of_depth; ++word) {
          const uint32_t* const at = words + (first + word) * panel_width + column;
          const auto loaded = Source::load(at);
          prefetch_ahead(at, column);
          for_units<x_units>([&](auto pair) __attribute__((always_inline)) {
            store(columns + (word * x_units + pair.index) * half,
                  words_of(Source::weight(loaded, zero, pair)));
          });
        }
    }
  }
};

template <typename Tiles, typename Int8, typename Float8, typename Int4, typename Mxfp4>
CodeKernels amx_code_kernels() {
  return {multiply_codes<AmxProducts<Tiles, Int8, IntegerLanes<8>>>,
          multiply_codes<AmxProducts<Tiles, Float8, Float8Lanes>>,
          multiply_codes<AmxProducts<Tiles, Int4, IntegerLanes<4>>>,
          multiply_codes<AmxProducts<Tiles, Mxfp4, E2m1Lanes>>};
}
// With Sources of any instruction set.
template <typename Tiles>
CodeKernels amx_code_kernels() {
  return amx_code_kernels<Tiles, CodesToPairs<IntegerLanes<8>, WidenedPair>,
                          CodesToPairs<Float8Lanes, WidenedPair>, CodesToPairs<IntegerLanes<4>, WidenedPair>,
                          CodesToPairs<E2m1Lanes, WidenedPair>>();
}

}  // namespace
}  // namespace maniple::cpu
