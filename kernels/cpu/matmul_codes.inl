// The loops of a CodeBlock. A Kernel sums one run (matmul_block.inl).
//
// Few rows: a Kernel that reads words and widens codes in registers. More: the codes of a panel are widened once into memory of L2's
// size, in the order in which the Kernel of the dense product reads, for all tiles. Both give the same bits.
#pragma once

#include <kernels/cpu/matmul_vector.inl>
#include <kernels/cpu/vector_lanes.hpp>

namespace maniple::cpu {
namespace {

inline float fp16_value(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu, sign = uint32_t{half & 0x8000u} << 16;
  float value;
  const uint32_t bits =
      magnitude >= 0x7c00u ? magnitude << 13 | 0x7f800000u : (magnitude << 13) + 0x38000000u;
  __builtin_memcpy(&value, &bits, 4);
  if (magnitude < 0x400u) value = static_cast<float>(magnitude) * 0x1p-24f;
  return sign ? -value : value;
}

// The scales of 32 columns.
inline void load_scales(const void* from, ScaleType type, int64_t run, float* to) {
  const int64_t at = run * panel_width;
  if (type == ScaleType::fp32) {
    __builtin_memcpy(to, static_cast<const float*>(from) + at, panel_width * 4);
  } else if (type == ScaleType::bf16) {
    for (int c = 0; c < panel_width; c += lanes)
      store(to + c, load_elements(static_cast<const uint16_t*>(from) + at + c));
  } else {
    const uint16_t* halves = static_cast<const uint16_t*>(from) + at;
#if defined(__AVX512F__)
    for (int c = 0; c < panel_width; c += lanes)
      store(to + c, (Floats)_mm512_maskz_cvtph_ps(0xffff, load<__m256i>(halves + c)));
#elif defined(__F16C__)
    for (int c = 0; c < panel_width; c += lanes)
      store(to + c, (Floats)_mm256_cvtph_ps(load<__m128i>(halves + c)));
#else
    for (int c = 0; c < panel_width; ++c) to[c] = fp16_value(halves[c]);
#endif
  }
}

// sums[row] += products[row] * (scale of the row * scales)
inline void add_scaled(const float* products, int rows, const float* scales, const float* x_scales,
                       int64_t x_scale_row, float* sums) {
  for (int r = 0; r < rows; ++r, x_scales += x_scale_row)
    for (int c = 0; c < panel_width; c += lanes) {
      float* const sum = sums + r * panel_width + c;
      const Floats scale = broadcast(*x_scales) * load<Floats>(scales + c);
      store(sum, multiply_add(load<Floats>(products + r * panel_width + c), scale, load<Floats>(sum)));
    }
}

// Sums of (code of x) * (unsigned code): exact in int32. The zero of all columns is 128: 128 * the sum of the codes of x is taken back.
inline void as_floats(float* products, int rows, const int32_t* x_sums, int64_t step) {
  for (int r = 0; r < rows; ++r, x_sums += step)
    for (int c = 0; c < panel_width; c += lanes) {
      float* const product = products + r * panel_width + c;
      const Ints exact = load<Ints>(product) - (128 * *x_sums - Ints{});
      store(product, __builtin_convertvector(exact, Floats));
    }
}

// A Products has
//   Kernel            sums a run of widened codes, or of integers
//   integers          whether x is codes too; the rest is for widened codes
//   x_units           units of x for a word
//   Direct, Paired    sum a run of words in registers: for up to direct_tiles; of two panels, for up to paired_rows
//   widen(words, zeros, count, to)    a run, into the order that Kernel reads
template <typename Products>
class CodeProduct {
 public:
  explicit CodeProduct(const CodeBlock& block) : block_(block) {}

  void run() {
    const int64_t rows = block_.tiles.first_row(block_.end_tile) - block_.tiles.first_row(block_.first_tile);
    const int64_t tiles = block_.end_tile - block_.first_tile;
    const int64_t panels = (block_.width + panel_width - 1) / panel_width;
    for (int64_t panel = 0; panel < panels;) {
      const uint32_t* const words = block_.panels + panel * block_.panel_words;
      const auto prefetch_behind = [&](int at_once, int64_t for_tiles) {
        const int64_t left = panels - panel - at_once, count = left < at_once ? left : at_once;
        if (left == 0) return PanelPrefetch(block_.next, block_.next ? block_.panel_words : 0, for_tiles);
        return PanelPrefetch(words + at_once * block_.panel_words, count * block_.panel_words, for_tiles,
                             at_once);
      };
      if constexpr (Products::integers) {
        PanelPrefetch prefetch = prefetch_behind(1, tiles);
        multiply_panels<1>(kernel_, 1, words, panel++, prefetch);
      } else if (rows <= Products::paired_rows && panel + 1 < panels) {
        typename Products::Paired paired;
        PanelPrefetch prefetch = prefetch_behind(2, 1);
        multiply_panels<2>(paired, 1, words, panel, prefetch);
        panel += 2;
      } else if (tiles <= Products::direct_tiles) {
        typename Products::Direct direct;
        PanelPrefetch prefetch = prefetch_behind(1, tiles);
        multiply_panels<1>(direct, 1, words, panel++, prefetch);
      } else {
        PanelPrefetch prefetch = prefetch_behind(1, 1), done(nullptr, 0, 1);
        widen_panel(words, panel, prefetch);
        multiply_panels<1>(kernel_, Products::x_units, block_.expanded, panel++, done);
      }
    }
  }

 private:
  static constexpr int tile_rows = Products::Kernel::tile_rows, row_step = Products::Kernel::row_step;

  int64_t runs() const { return block_.slice_runs[block_.slices]; }
  const uint8_t* zeros(int64_t panel, int64_t run) const {
    return block_.zeros + (panel * runs() + run) * block_.zero_step;
  }

  void widen_panel(const uint32_t* words, int64_t panel, PanelPrefetch& prefetch) {
    uint32_t* to = block_.expanded;
    for (int64_t run = 0; run < runs(); ++run) {
      const int64_t count = block_.run_words[run];
      for (int64_t word = 0; word < count; word += PanelPrefetch::units_in_step) prefetch.step();
      Products::widen(words, zeros(panel, run), count, to);
      words += count * panel_width, to += count * panel_width * Products::x_units;
    }
  }

  // units: of weights that the kernel reads for a word. The tiles of `panels` panels lie side by side.
  template <int panels, typename Kernel>
  void multiply_panels(Kernel& kernel, int units, const uint32_t* weights, int64_t panel,
                       PanelPrefetch& prefetch) {
    alignas(64) float scales[panel_width];
    for (int64_t t = block_.first_tile; t < block_.end_tile; ++t) {
      const int64_t row = block_.tiles.first_row(t), end = block_.tiles.first_row(t + 1);
      SliceTile tile{block_.x + row * block_.row_units, weights, 0, static_cast<int>(end - row)};
      tile.panel_step = block_.panel_words;
      tile.zero_step = runs() * block_.zero_step;
      const int64_t padded_rows = (tile.rows + row_step - 1) & -row_step;
      const int panel_sums = tile.rows * panel_width;
      sum_slices<tile_rows>(block_.slices, tile.rows * panels, tiles_, [&](int slice, float* sums) {
        __builtin_memset(sums, 0, static_cast<size_t>(panels * panel_sums) * 4);
        for (int64_t run = block_.slice_runs[slice]; run < block_.slice_runs[slice + 1]; ++run) {
          const int64_t words = block_.run_words[run];
          tile.units = words * units;
          tile.zeros = zeros(panel, run);
          kernel.sum(tile, products_, prefetch);
          if constexpr (Products::integers)
            as_floats(products_, tile.rows, block_.x_sums + row * block_.slices + slice, block_.slices);
          for (int p = 0; p < panels; ++p) {
            load_scales(block_.scales, block_.scale_type, (panel + p) * runs() + run, scales);
            add_scaled(products_ + p * panel_sums, tile.rows, scales,
                       block_.x_scales + row * block_.x_scale_row + run * block_.x_scale_run,
                       block_.x_scale_row, sums + p * panel_sums);
          }
          tile.x += words * Products::x_units * padded_rows;
          tile.weights += tile.units * panel_width;
        }
      });
      for (int p = 0; p < panels; ++p) {
        const int64_t column = (panel + p) * panel_width, left = block_.width - column;
        finish_tile(tiles_[0] + p * panel_sums, tile.rows,
                    left < panel_width ? static_cast<int>(left) : panel_width,
                    block_.bias ? block_.bias + column : nullptr, block_, row, column);
      }
    }
  }

  const CodeBlock& block_;
  typename Products::Kernel kernel_;
  alignas(64) float products_[tile_rows * panel_width];  // of all panels that a kernel takes at once
  alignas(64) float tiles_[tree_levels][tile_rows * panel_width];
};

template <typename Products>
void multiply_codes(const CodeBlock& block) {
  CodeProduct<Products>(block).run();
}

// Codes by a Source of Vector; VectorKernel multiplies.
template <typename Vector, int rows_in_tile, typename Source, int most_paired_rows = 0>
struct WidenedProducts {
  using Kernel = VectorKernel<Vector, rows_in_tile>;
  using Direct = VectorKernel<Vector, rows_in_tile, Source>;
  using Paired = VectorKernel<Vector, most_paired_rows, Source, 2>;
  static constexpr int paired_rows = most_paired_rows, x_units = Source::units;
  static constexpr int direct_tiles = 4;  // from here on widening again and again costs more than memory
  static constexpr bool integers = false;

  static void widen(const uint32_t* words, const uint8_t* zeros, int64_t count, uint32_t* to) {
    typename Source::Zeros zero[panel_width / Vector::lanes];
    for (int v = 0; v < panel_width / Vector::lanes; ++v) zero[v] = Source::zeros(zeros, v * Vector::lanes);
    for (; count > 0; --count, words += panel_width, to += x_units * panel_width)
#pragma GCC unroll 2
      for (int v = 0; v < panel_width / Vector::lanes; ++v) {
        const auto loaded = Source::load(words + v * Vector::lanes);
        for_units<x_units>([&](auto unit) __attribute__((always_inline)) {
          Vector::store_weight(to + unit.index * panel_width + v * Vector::lanes,
                               Source::weight(loaded, zero[v], unit));
        });
      }
  }
};

// x and weights are int8: sums are int32.
template <typename Sums>
struct IntegerProducts {
  using Kernel = Sums;
  static constexpr int x_units = 1;
  static constexpr bool integers = true;
};

}  // namespace
}  // namespace maniple::cpu
