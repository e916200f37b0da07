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

inline Floats load_scales(const void* scales, ScaleType type, int64_t at) {
  if (type == ScaleType::fp32) return load<Floats>(static_cast<const float*>(scales) + at);
  if (type == ScaleType::e8m0) {
    const Words powers = (Words)load_bytes(static_cast<const uint8_t*>(scales) + at) << 23;
    const Words least = Words{} + 0x00400000u;  // 2^-127, which is subnormal
    return (Floats)(powers > least ? powers : least);
  }
  const uint16_t* const halves = static_cast<const uint16_t*>(scales) + at;
  if (type == ScaleType::bf16) return load_elements(halves);
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_cvtph_ps(0xffff, load<__m256i>(halves));
#elif defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(load<__m128i>(halves));
#else
  Floats values;
  for (int i = 0; i < lanes; ++i) values[i] = fp16_value(halves[i]);
  return values;
#endif
}

// Some runs of a slice, or a part of its only one, against panels side by side: sums + products * (scale of the row of x * scales of the
// columns).
// integers: a slice is one run of sums of (code of x) * (unsigned code), exact in int32. The zero of all columns is 128: 128 * the sum
// of the codes of x is taken back.
template <bool integers>
struct CodeSums {
  static constexpr bool one_run = integers, scaled = true;
  const CodeBlock& block;
  int64_t panel, row;
  int rows, slice, first_run, end_run;
  int64_t first_word, words;  // where runs() == 1: of that run
  int x_units;                // units of weights that the kernel reads for a word
  float* sums;

  bool begun() const { return first_run > block.slice_runs[slice]; }
  bool run_begun() const { return first_word > 0; }
  bool run_ends() const { return runs() > 1 || first_word + words == block.run_words[first_run]; }
  int runs() const { return end_run - first_run; }
  int64_t units(int run) const { return (runs() == 1 ? words : block.run_words[first_run + run]) * x_units; }
  const uint8_t* zeros(int run) const {
    return block.zeros + (panel * block.slice_runs[block.slices] + first_run + run) * block.zero_step;
  }
  [[gnu::always_inline]] float* at(int r, int column) const {
    return sums + (column / panel_width * rows + r) * panel_width + column % panel_width;
  }
  template <typename F>
  [[gnu::always_inline]] void choose(int run, F f) const {
    if (integers || block.x_scale_row != 0)
      f(Add<true>{*this, first_run + run});
    else  // all scales of x are 1
      f(Add<false>{*this, first_run + run});
  }

 private:
  template <bool scaled_rows>
  struct Add {
    const CodeSums& of;
    const int64_t run;

    [[gnu::always_inline]] auto columns(int column) const {
      const CodeBlock& codes = of.block;
      const int64_t panel_run = (of.panel + column / panel_width) * codes.slice_runs[codes.slices] + run;
      const Floats scales =
          load_scales(codes.scales, codes.scale_type, panel_run * panel_width + column % panel_width);
      return [
        scales, &of = of, x_scales = codes.x_scales + of.row * codes.x_scale_row + run * codes.x_scale_run
      ](int r, auto products, Floats sum) __attribute__((always_inline)) {
        const Floats scale = scaled_rows ? broadcast(x_scales[r * of.block.x_scale_row]) * scales : scales;
        return multiply_add(of.value(products, r), scale, sum);
      };
    }
  };

  template <typename Products>
  [[gnu::always_inline]] Floats value(Products products, int r) const {
    if constexpr (!integers) return (Floats)products;
    const int32_t x_sum = block.x_sums[(row + r) * block.slices + slice];
    return __builtin_convertvector((Ints)products - (128 * x_sum - Ints{}), Floats);
  }
};

// A Products has
//   Kernel            sums widened codes, or integers
//   integers          whether x is codes too; the rest is for widened codes
//   x_units           units of x for a word
//   Direct, Paired    widen words in registers: where direct(block, rows); of two panels, for up to paired_rows
//   widen(words, zeros, count, to)    a run, into the order that Kernel reads
template <typename Products>
class CodeProduct {
 public:
  explicit CodeProduct(const CodeBlock& block) : block_(block) {}

  void run() {
    const int64_t rows = block_.tiles.first_row(block_.end_tile) - block_.tiles.first_row(block_.first_tile);
    const int64_t tiles = block_.end_tile - block_.first_tile;
    const int64_t panels = (block_.width + panel_width - 1) / panel_width;
    bool widens_in_registers = false;
    if constexpr (!Products::integers) widens_in_registers = Products::direct(block_, rows);
    const int64_t passes = tiles * (widens_in_registers || Products::integers ? 1 : Products::x_units);
    for (int64_t panel = 0; panel < panels;) {
      const uint32_t* const words = block_.panels + panel * block_.panel_words;
      const uint32_t* const next = panel + 1 < panels ? words + block_.panel_words : block_.next;
      PanelPrefetch prefetch(next, block_.panel_words, passes);
      if constexpr (Products::integers) {
        multiply_panels<1>(kernel_, 1, words, panel++, prefetch);
      } else if (rows <= Products::paired_rows && panel + 1 < panels) {
        typename Products::Paired paired;
        multiply_panels<2>(paired, 1, words, panel, prefetch);
        panel += 2;
      } else if (widens_in_registers) {
        typename Products::Direct direct;
        multiply_panels<1>(direct, 1, words, panel++, prefetch);
      } else {
        widen_panel(words, panel);
        multiply_panels<1>(kernel_, Products::x_units, block_.expanded, panel++, prefetch);
      }
    }
  }

 private:
  using Group = TileGroup<typename Products::Kernel>;

  int64_t runs() const { return block_.slice_runs[block_.slices]; }
  const uint8_t* zeros(int64_t panel, int64_t run) const {
    return block_.zeros + (panel * runs() + run) * block_.zero_step;
  }

  void widen_panel(const uint32_t* words, int64_t panel) {
    uint32_t* to = block_.expanded;
    for (int64_t run = 0; run < runs(); ++run) {
      const int64_t count = block_.run_words[run];
      Products::widen(words, zeros(panel, run), count, to);
      words += count * panel_width, to += count * panel_width * Products::x_units;
    }
  }

  // x_units: of weights that the kernel reads for a word. The tiles of `panels` panels lie side by side.
  template <int panels, typename Kernel>
  void multiply_panels(Kernel& kernel, int x_units, const uint32_t* weights, int64_t panel,
                       PanelPrefetch& prefetch) {
    for (int64_t first = block_.first_tile; first < block_.end_tile; first += Kernel::tiles_at_once) {
      Group group(
          block_, first, block_.row_units,
          {.weights = weights, .panel_step = block_.panel_words, .zero_step = runs() * block_.zero_step});
      group.sum_slices(block_.slices, panels, [&](int slice, int level) {
        const int first_of_slice = block_.slice_runs[slice], end_of_slice = block_.slice_runs[slice + 1];
        const int64_t most = group.block_units() / x_units;
        for (int run = first_of_slice, end; run < end_of_slice; run = end) {
          int64_t words = block_.run_words[end = run];
          while (++end < end_of_slice && words + block_.run_words[end] <= most)
            words += block_.run_words[end];
          // A run that is alone in its slice may be cut: its products go on where the sums of the slice lie.
          const int64_t part = end_of_slice - first_of_slice > 1 || words < most ? words : most;
          for (int64_t word = 0, count; word < words; word += count) {
            count = words - word < part ? words - word : part;
            group.sum_block(
                level, count * Products::x_units, count * x_units, [&](const SliceTile& tile, float* sums) {
                  const CodeSums<Products::integers> code_sums{
                      block_, panel, tile.first_row, tile.rows, slice, run, end, word, count, x_units, sums};
                  kernel.sum(tile, code_sums, prefetch);
                });
          }
        }
      });
      group.finish([&](const SliceTile& tile, float* sums) {
        for (int p = 0; p < panels; ++p) {
          const int64_t column = (panel + p) * panel_width, left = block_.width - column;
          finish_tile(sums + p * tile.rows * panel_width, tile.rows,
                      left < panel_width ? static_cast<int>(left) : panel_width,
                      block_.bias ? block_.bias + column : nullptr, block_, tile.first_row, column);
        }
      });
    }
  }

  const CodeBlock& block_;
  typename Products::Kernel kernel_;
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
  static constexpr bool integers = false;

  // For more, widening again and again costs more than memory.
  static bool direct(const CodeBlock&, int64_t rows) {
    return rows <= (Vector::registers < 16 ? 1 : 16) * rows_in_tile;
  }
  static void widen(const uint32_t* words, const uint8_t* zeros, int64_t count, uint32_t* to) {
    typename Source::Zeros zero[panel_width / Vector::lanes];
    for (int v = 0; v < panel_width / Vector::lanes; ++v) zero[v] = Source::zeros(zeros, v * Vector::lanes);
    for (; count > 0; --count, words += panel_width, to += x_units * panel_width)
#pragma GCC unroll 2
      for (int v = 0; v < panel_width / Vector::lanes; ++v) {
        const auto loaded = Source::load(words + v * Vector::lanes);
        prefetch_ahead(words + v * Vector::lanes, v * Vector::lanes);
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
