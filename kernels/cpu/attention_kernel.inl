// Attention over one tile, written once and compiled for each instruction path.
//
// Scores: keys are transposed a vector at a time. A lane is a key, and a score is one sum
// over the dimensions, ascending. Values: a lane is a dimension, and an output is one sum
// over the positions, ascending. The bits of a row therefore do not depend on how many
// rows share a register block. Positions after a row's own never enter its sums.
#include <kernels/cpu/attention_kernel.hpp>
#include <kernels/cpu/transpose_words.inl>
#include <kernels/cpu/vector_lanes.hpp>

namespace maniple::cpu {
namespace {

constexpr int split_size = 256;
// Register blocking: rows * key_vectors or rows * value vectors accumulators.
constexpr int max_rows = lanes == 16 ? 6 : 4;
constexpr int key_vectors = lanes == 16 ? 4 : 2;
constexpr int key_group = key_vectors * lanes;
constexpr int wide_values = lanes == 16 ? 8 : 4;  // for few rows
constexpr int wide_rows = lanes == 16 ? 3 : 2;
constexpr int run_length = 32;  // prefetch distance in keys
static_assert(key_group <= attention_key_group && split_size % key_group == 0);

inline int min_of(int a, int b) { return a < b ? a : b; }
inline int rows_of(const AttentionTile& tile) { return tile.tokens * tile.group; }

// Runs body.template operator()<R>(first row) over the rows in blocks of at most max_rows.
template <int R, typename Body>
inline void run_block(int rows, int row, const Body& body) {
  if constexpr (R > 1) {
    if (rows < R) return run_block<R - 1>(rows, row, body);
  }
  body.template operator()<R>(row);
}
template <typename Body>
inline void for_row_blocks(int rows, const Body& body) {
  for (int row = 0; row < rows; row += max_rows) run_block<max_rows>(min_of(max_rows, rows - row), row, body);
}

// One split of a tile: positions [start, start + keys of the row) for each row.
template <typename Element>
struct Split {
  const AttentionTile& tile;
  int64_t start;

  // Keys of the split that the row sees, possibly none.
  int keys_of(int row) const {
    const int64_t keys = tile.first_position + row / tile.group + 1 - start;
    return keys < 0 ? 0 : keys < split_size ? static_cast<int>(keys) : split_size;
  }
  // Where the key or value of a position of the split lies.
  const Element* at(const void* pages, int offset) const {
    const int64_t position = start + offset;
    const int64_t in_block = position & ((int64_t{1} << tile.block_shift) - 1);
    return static_cast<const Element*>(pages) +
           tile.blocks[position >> tile.block_shift] * tile.block_stride + in_block * tile.head_dim;
  }
  // What to prefetch at key `offset` of the split, or with `of_values` at value `offset`: the data run_length
  // positions further on in the order keys, values, keys of the next split.
  const Element* ahead(int keys, int offset, bool of_values) const {
    const int next = offset + run_length;
    if (next < keys) return at(of_values ? tile.values : tile.keys, next);
    if (!of_values) return at(tile.values, min_of((next - keys) & -lanes, keys - 1));
    if (start + tile.next_split < tile.first_position + tile.tokens)
      return at(tile.keys, static_cast<int>(tile.next_split));
    return at(tile.values, offset);
  }
};

inline void prefetch(const void* from, int bytes) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

// --- scores ---

// Words of 32 bits: one fp32 or two bf16. to[word * key_group + key] = word of the key, for `lanes`
// contiguous keys.
inline void transpose_keys(const uint32_t* keys, const uint32_t* ahead, int words, uint32_t* to) {
  Words a[lanes];
  int word = 0;
  for (; word + lanes <= words; word += lanes) {
#pragma GCC unroll 16
    for (int key = 0; key < lanes; ++key) {
      __builtin_prefetch(ahead + key * words + word);
      a[key] = load<Words>(keys + key * words + word);
    }
    transpose_words(a);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) store(to + (word + i) * key_group, a[i]);
  }
  for (; word < words; ++word)
    for (int key = 0; key < lanes; ++key)
      __builtin_memcpy(to + word * key_group + key, keys + key * words + word, sizeof *to);
}

// Multiplies a word of a query with a vector of key words.
template <typename Element>
struct Dot;
template <>
struct Dot<float> {
  static constexpr int floats_per_word = 1;
  static void prepare(const float* from, int head_dim, float* to) {
    for (int d = 0; d < head_dim; d += lanes) store(to + d, load<Floats>(from + d));
  }
  static Floats add(Floats sum, const float* query, Words keys) {
    return multiply_add(broadcast(*query), (Floats)keys, sum);
  }
};
template <>
struct Dot<uint16_t> {
#if defined(__AVX512BF16__)
  static constexpr int floats_per_word = 1;  // a pair of bf16
  static void prepare(const uint16_t* from, int head_dim, float* to) {
    __builtin_memcpy(to, from, 2 * static_cast<unsigned>(head_dim));
  }
  static Floats add(Floats sum, const float* query, Words keys) {
    uint32_t pair;
    __builtin_memcpy(&pair, query, sizeof pair);
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(Words{} + pair), (__m512bh)keys);
  }
#else
  static constexpr int floats_per_word = 2;
  static void prepare(const uint16_t* from, int head_dim, float* to) {
    for (int d = 0; d < head_dim; d += lanes) store(to + d, load_elements(from + d));
  }
  static Floats add(Floats sum, const float* query, Words keys) {
    sum = multiply_add(broadcast(query[0]), (Floats)(keys << 16), sum);
    return multiply_add(broadcast(query[1]), (Floats)(keys & 0xffff0000u), sum);
  }
#endif
};

// scores[row][key] for R rows and one group of keys.
template <int R, typename Element>
inline void score_rows(const float* queries, int head_dim, const uint32_t* keys, float scale, float* scores) {
  constexpr int step = Dot<Element>::floats_per_word;
  const int words = head_dim * static_cast<int>(sizeof(Element)) / 4;
  Floats sums[R][key_vectors] = {};
  for (int word = 0; word < words; ++word) {
#pragma GCC unroll 4
    for (int v = 0; v < key_vectors; ++v) {
      const Words key_words = load<Words>(keys + word * key_group + v * lanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
        sums[r][v] = Dot<Element>::add(sums[r][v], queries + r * head_dim + word * step, key_words);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < key_vectors; ++v) store(scores + r * split_size + v * lanes, sums[r][v] * scale);
}

inline const uint32_t* words_at(const void* elements) { return static_cast<const uint32_t*>(elements); }

template <typename Element>
void score_tile(const Split<Element>& split, const float* queries, uint32_t* transposed, float* scores) {
  const AttentionTile& tile = split.tile;
  const int rows = rows_of(tile), keys = split.keys_of(rows - 1);
  const int words = tile.head_dim * static_cast<int>(sizeof(Element)) / 4;
  const float scale = tile.scale * 0x1.715476p0f;  // log2(e)
  for (int key = 0; key < keys; key += key_group) {
    for (int i = 0; i < key_group && key + i < keys; i += lanes)
      transpose_keys(words_at(split.at(tile.keys, key + i)), words_at(split.ahead(keys, key + i, false)),
                     words, transposed + i);
    for_row_blocks(rows, [&]<int R>(int row) {
      if (split.keys_of(row + R - 1) <= key) return;
      score_rows<R, Element>(queries + row * tile.head_dim, tile.head_dim, transposed, scale,
                             scores + row * split_size + key);
    });
  }
}

// --- softmax ---

// Turns scores into p over the row's keys; a row without keys has maximum -inf and sum 0.
inline void exponentiate(float* scores, int keys, float& maximum, float& sum) {
  constexpr float infinity = __builtin_inff();
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  Floats best = broadcast(-infinity);
  for (int key = 0; key < keys; key += lanes) {
    const Floats score = lane < keys - key ? load<Floats>(scores + key) : broadcast(-infinity);
    store(scores + key, score);
    best = score > best ? score : best;
  }
  maximum = max_lanes(best);
  Floats total{};
  for (int key = 0; key < keys; key += lanes) {
    const Floats p = exp2_nonpositive(load<Floats>(scores + key) - maximum);
    store(scores + key, p);
    total += p;
  }
  sum = sum_lanes(total);
}

// --- values ---

// out[row][dimension] += p[row][key] * values[key][dimension] for R rows and N vectors of dimensions, key
// after key.
template <int R, int N, typename Element>
inline void add_columns(const float* p, const Element* values, const Element* ahead, int head_dim, int keys,
                        float* out) {
  Floats sums[R][N];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) sums[r][v] = load<Floats>(out + r * head_dim + v * lanes);
  for (int key = 0; key < keys; ++key, values += head_dim) {
    if constexpr (N == wide_values)
      prefetch(ahead + key * head_dim, N * lanes * static_cast<int>(sizeof(Element)));
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) {
      const Floats value = load_elements(values + v * lanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
        sums[r][v] = multiply_add(broadcast(p[r * split_size + key]), value, sums[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) store(out + r * head_dim + v * lanes, sums[r][v]);
}

// The same over all dimensions, for keys [begin, end) of the split, block after block.
template <int R, typename Element>
inline void add_values(const Split<Element>& split, const float* p, int begin, int end, float* out) {
  const int head_dim = split.tile.head_dim, block_size = 1 << split.tile.block_shift;
  for (int key = begin; key < end;) {
    const int in_block = block_size - static_cast<int>((split.start + key) & (block_size - 1));
    const int count = min_of(end - key, R <= wide_rows ? min_of(in_block, run_length) : in_block);
    const Element* values = split.at(split.tile.values, key);
    const Element* ahead = R <= wide_rows ? split.ahead(end, key, true) : values;
    int d = 0;
    if constexpr (R <= wide_rows)
      for (; d + wide_values * lanes <= head_dim; d += wide_values * lanes)
        add_columns<R, wide_values>(p + key, values + d, ahead + d, head_dim, count, out + d);
    for (; d + wide_values / 2 * lanes <= head_dim; d += wide_values / 2 * lanes)
      add_columns<R, wide_values / 2>(p + key, values + d, ahead + d, head_dim, count, out + d);
    for (; d < head_dim; d += lanes)
      add_columns<R, 1>(p + key, values + d, ahead + d, head_dim, count, out + d);
    key += count;
  }
}

// --- the three steps ---

template <typename Element>
void attend_split(const AttentionTile& tile, int64_t index, float* scratch, float* partial) {
  const Split<Element> split{tile, index * split_size};
  const int rows = rows_of(tile), head_dim = tile.head_dim;
  float* queries = scratch;
  float* scores = queries + attention_tile_rows * head_dim;
  uint32_t* transposed = reinterpret_cast<uint32_t*>(scores + attention_tile_rows * split_size);
  for (int row = 0; row < rows; ++row) {
    const int head = row % tile.group;
    Dot<Element>::prepare(static_cast<const Element*>(tile.queries) + row / tile.group * tile.token_stride +
                              head / tile.owner_heads * tile.owner_stride +
                              head % tile.owner_heads * head_dim,
                          head_dim, queries + row * head_dim);
  }
  score_tile(split, queries, transposed, scores);

  float* maxima = partial + rows * head_dim;
  for (int row = 0; row < rows; ++row)
    exponentiate(scores + row * split_size, split.keys_of(row), maxima[row], maxima[rows + row]);
  for (int i = 0; i < rows * head_dim; i += lanes) store(partial + i, Floats{});
  for_row_blocks(rows, [&]<int R>(int row) {
    const int shared = split.keys_of(row);
    add_values<R>(split, scores + row * split_size, 0, shared, partial + row * head_dim);
    for (int r = row + 1; r < row + R; ++r)
      add_values<1>(split, scores + r * split_size, shared, split.keys_of(r), partial + r * head_dim);
  });
}

void merge_split(const AttentionTile& tile, const float* partial, float* total) {
  const int rows = rows_of(tile), head_dim = tile.head_dim;
  const float* maxima = partial + rows * head_dim;
  float* total_maxima = total + rows * head_dim;
  for (int row = 0; row < rows; ++row) {
    if (maxima[rows + row] == 0) continue;  // the split lies after the row's position
    const float maximum = maxima[row] > total_maxima[row] ? maxima[row] : total_maxima[row];
    const Floats old_weight = exp2_nonpositive(broadcast(total_maxima[row] - maximum));
    const Floats new_weight = exp2_nonpositive(broadcast(maxima[row] - maximum));
    for (int i = row * head_dim; i < (row + 1) * head_dim; i += lanes)
      store(total + i,
            multiply_add(load<Floats>(partial + i), new_weight, load<Floats>(total + i) * old_weight));
    total_maxima[row] = maximum;
    total_maxima[rows + row] = multiply_add(broadcast(maxima[rows + row]), new_weight,
                                            broadcast(total_maxima[rows + row]) * old_weight)[0];
  }
}

template <typename Element>
void finish_tile(const AttentionTile& tile, const float* total) {
  const int rows = rows_of(tile), head_dim = tile.head_dim;
  const float* sums = total + rows * head_dim + rows;
  for (int row = 0; row < rows; ++row) {
    Element* out =
        static_cast<Element*>(tile.out) + row / tile.group * tile.token_stride + row % tile.group * head_dim;
    for (int d = 0; d < head_dim; d += lanes)
      store_elements(out + d, load<Floats>(total + row * head_dim + d) / sums[row]);
  }
}

inline AttentionKernel attention_kernel(bool bf16) {
  if (bf16) return {attend_split<uint16_t>, merge_split, finish_tile<uint16_t>};
  return {attend_split<float>, merge_split, finish_tile<float>};
}

}  // namespace
}  // namespace maniple::cpu
