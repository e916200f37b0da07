// Scores of latent rows, which lie in the order of values.
#pragma once

#include <kernels/cpu/attention_split.inl>

namespace maniple::cpu {
namespace {

// Multiplies dimensions of a query with those of latent rows: they lie in lanes, positions in a word. A vector of the left side has
// `step` dimensions; spread() makes a vector of each position of them.
template <typename Element>
struct LaneDot {
  static constexpr int step = lanes;
  static int floats(int key_dim) { return key_dim; }
  static void prepare(const Element* from, int key_dim, float* to) {
    for (int d = 0; d < key_dim; d += lanes) store(to + d, load_elements(from + d));
  }
  static void spread(const uint32_t* row, int /*left*/, Words (&positions)[4 / sizeof(Element)]) {
    const Words words = load<Words>(row);
    if constexpr (sizeof(Element) == 4)
      positions[0] = words;
    else
      positions[0] = words << 16, positions[1] = words & 0xffff0000u;
  }
  static Floats add(Floats sum, Floats left, Words right) { return multiply_add(left, (Floats)right, sum); }
};
#if defined(__AVX512BF16__)
// Pairs are a dimension and the one `lanes` after it; zeros stand beside the last ones of an odd number of vectors.
template <>
struct LaneDot<uint16_t> {
  static constexpr int step = 2 * lanes;
  static int floats(int key_dim) { return (key_dim + step - 1) / step * lanes; }
  static void prepare(const uint16_t* from, int key_dim, float* to) {
    const auto wide = [&](int d) {
      return d < key_dim ? __builtin_convertvector(load<Halves>(from + d), Words) : Words{};
    };
    for (int d = 0; d < key_dim; d += step, to += lanes) store(to, wide(d) | wide(d + lanes) << 16);
  }
  static void spread(const uint32_t* row, int left, Words (&positions)[2]) {
    const Words first = load<Words>(row), second = left > lanes ? load<Words>(row + lanes) : Words{};
    positions[0] = (first & 0xffffu) | second << 16;
    positions[1] = first >> 16 | (second & 0xffff0000u);
  }
  static Floats add(Floats sum, Floats left, Words right) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)right);
  }
};
#endif

// Loads once what several products use: as an operand of each it would be loaded by each, and loads are the limit.
inline Floats load_once(const float* from) {
  Floats values = load<Floats>(from);
#if defined(__AVX2__) && !defined(__AVX512F__)
  asm("" : "+x"(values));
#endif
  return values;
}

// Positions that share a register block with so many rows.
constexpr int positions_beside(int rows) {
  if (lanes == 16) return rows <= 2 ? 8 : 4;
  return rows == 1 ? 8 : rows == 2 ? 4 : 2;
}

// As score_tile, of latent rows: a score is a chain over every `lanes` dimensions in each lane, then the sum of the lanes.
template <typename Split>
void score_latent_rows(const Split& split, float* queries, float* scores) {
  using Dot = LaneDot<typename Split::Element>;
  constexpr int in_word = Split::in_word;
  const AttentionTile& tile = split.tile;
  const int rows = rows_of(tile), keys = split.keys_of(rows - 1), key_dim = tile.key_dim;
  const int stride = prepare_queries<Dot, typename Split::Element>(tile, queries);
  const float scale = tile.scale * log2_e;
  for (int first = 0; first < keys; first += position_group) {
    const uint32_t *group = split.keys_at(first), *ahead = split.ahead(keys, first);
    for_row_blocks(rows, [&]<int R>(int row) {
      constexpr int P = positions_beside(R);
      const int left = min_of(split.keys_of(row + R - 1) - first, position_group);
      for (int position = 0; position < left; position += P) {
        const uint32_t* words = group + position / in_word * key_dim;
        const float* query = queries + row * stride;
        Floats sums[R][P] = {};
        for (int d = 0; d < key_dim; d += Dot::step, words += Dot::step, query += lanes) {
          Floats left_side[R];
#pragma GCC unroll 6
          for (int r = 0; r < R; ++r) left_side[r] = load_once(query + r * stride);
#pragma GCC unroll 8
          for (int p = 0; p < P; p += in_word) {
            const uint32_t* const word = words + p / in_word * key_dim;
            if (row == 0 && (!values_fetch(p / in_word) || d >= tile.value_dim))
              for (int line = 0; line < Dot::step; line += lanes)
                __builtin_prefetch(ahead + (word - group) + line, 0, 2);
            Words right[in_word];
            Dot::spread(word, key_dim - d, right);
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
              for (int i = 0; i < in_word; ++i)
                sums[r][p + i] = Dot::add(sums[r][p + i], left_side[r], right[i]);
          }
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
          for (int p = 0; p < P; ++p)
            scores[(row + r) * split_size + first + position + p] = sum_lanes(sums[r][p]) * scale;
      }
    });
  }
}

}  // namespace
}  // namespace maniple::cpu
