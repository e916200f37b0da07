// Attention over one tile, written once and compiled for each instruction path.
//
// Both products multiply words of the left side (queries, then weights) with vectors of words from the cache, in the order in
// which cpu_pages.hpp stores them. Scores: a lane is a key, and a score is one sum over the dimensions, ascending. Values: a
// lane is a dimension, and an output is one sum over the positions, ascending. The bits of a row therefore do not depend on
// how many rows share a register block. Positions after a row's own never enter its sums.
#include <kernels/cpu/attention_kernel.hpp>
#include <kernels/cpu/e4m3_lanes.inl>

namespace maniple::cpu {
namespace {

constexpr int split_size = 256;
// Register blocking: rows * key_vectors or rows * value vectors accumulators.
constexpr int max_rows = lanes == 16 ? 6 : 4;
constexpr int key_vectors = lanes == 16 ? 4 : 2;
constexpr int wide_values = lanes == 16 ? 8 : 4;  // for few rows
constexpr int wide_rows = lanes == 16 ? 3 : 2;    // so few that memory limits them: they prefetch
// Of positions, to prefetch into the second cache: the first one waits for too few lines at once.
constexpr int groups_ahead = 4;

inline int min_of(int a, int b) { return a < b ? a : b; }
inline int rows_of(const AttentionTile& tile) { return tile.tokens * tile.group; }
template <typename Element>
inline const Element* query_of(const AttentionTile& tile, int row) {
  const int head = row % tile.group;
  return static_cast<const Element*>(tile.queries) + row / tile.group * tile.token_stride +
         head / tile.owner_heads * tile.owner_stride + head % tile.owner_heads * tile.head_dim;
}

// Runs body.template operator()<count>(), for a count from 1 to N.
template <int N, typename Body>
inline void with_count(int count, const Body& body) {
  if constexpr (N > 1) {
    if (count < N) return with_count<N - 1>(count, body);
  }
  body.template operator()<N>();
}
// Runs body.template operator()<R>(first row) over the rows in blocks of at most max_rows.
template <typename Body>
inline void for_row_blocks(int rows, const Body& body) {
  for (int row = 0; row < rows; row += max_rows)
    with_count<max_rows>(min_of(max_rows, rows - row), [&]<int R>() { body.template operator()<R>(row); });
}

// One split of a tile: positions [start, start + keys of the row) for each row. The cache holds the type of queries, or e4m3.
template <typename Query, typename Cached>
struct Split {
  using Element = Query;
  static constexpr int in_word = 4 / sizeof(Element);  // dimensions of a key, positions of values
  static constexpr int in_stored = 4 / sizeof(Cached), parts = in_stored / in_word;  // words of a stored word
  const AttentionTile& tile;
  int64_t start;

  // Keys of the split that the row sees, possibly none.
  int keys_of(int row) const {
    const int64_t keys = tile.first_position + row / tile.group + 1 - start;
    return keys < 0 ? 0 : keys < split_size ? static_cast<int>(keys) : split_size;
  }
  int group_words() const { return position_group * tile.head_dim / in_stored; }
  // Where the keys or values from a position of the split on lie: the first of a group, or of a word of values.
  const uint32_t* at(const void* pages, int offset) const {
    const int64_t position = start + offset;
    const int64_t in_block = position & ((int64_t{1} << tile.block_shift) - 1);
    return reinterpret_cast<const uint32_t*>(static_cast<const Cached*>(pages) +
                                             tile.blocks[position >> tile.block_shift] * tile.block_stride +
                                             in_block * tile.head_dim);
  }
  static Words word(Words stored, int part) {
    if constexpr (parts == 1) return stored;
    if constexpr (in_word == 2)
      return bf16_pairs(e4m3_values(stored, 8 * part), e4m3_values(stored, 8 * part + 16));
    return (Words)e4m3_values(stored, 8 * (part / 2) + 16 * (part % 2));
  }
  // What to prefetch at a group of the keys or, after the last one, of the values: the group that is read groups_ahead later.
  const uint32_t* ahead(int keys, int group) const {
    const int groups = (keys + position_group - 1) / position_group, next = group + groups_ahead;
    if (next < groups) return at(tile.keys, next * position_group);
    if (next < 2 * groups) return at(tile.values, (next - groups) * position_group);
    if (start + tile.next_split < tile.first_position + tile.tokens)
      return at(tile.keys, static_cast<int>(tile.next_split)) + (next - 2 * groups) * group_words();
    return static_cast<const uint32_t*>(tile.next_keys) + (next - 2 * groups) * group_words();
  }
};

// --- products ---

// Multiplies a word of a row of the left side with a vector of words: one fp32 or two bf16 each.
template <typename Element>
struct Dot;
template <>
struct Dot<float> {
  static constexpr int floats_per_word = 1;
  static void prepare(const float* from, int head_dim, float* to) {
    for (int d = 0; d < head_dim; d += lanes) store(to + d, load<Floats>(from + d));
  }
  static void store_weights(float* row, int key, Floats weights) { store(row + key, weights); }
  static Floats add(Floats sum, const float* left, Words right) {
    return multiply_add(broadcast(*left), (Floats)right, sum);
  }
};
template <>
struct Dot<uint16_t> {
#if defined(__AVX512BF16__)
  static constexpr int floats_per_word = 1;  // a pair of bf16
  static void prepare(const uint16_t* from, int head_dim, float* to) {
    __builtin_memcpy(to, from, 2 * static_cast<unsigned>(head_dim));
  }
  static void store_weights(float* row, int key, Floats weights) {
    store(reinterpret_cast<uint16_t*>(row) + key, _mm512_cvtneps_pbh((__m512)weights));
  }
  static Floats add(Floats sum, const float* left, Words right) {
    uint32_t pair;
    __builtin_memcpy(&pair, left, sizeof pair);
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(Words{} + pair), (__m512bh)right);
  }
#else
  static constexpr int floats_per_word = 2;
  static void prepare(const uint16_t* from, int head_dim, float* to) {
    for (int d = 0; d < head_dim; d += lanes) store(to + d, load_elements(from + d));
  }
  static void store_weights(float* row, int key, Floats weights) { store(row + key, weights); }
  static Floats add(Floats sum, const float* left, Words right) {
    sum = multiply_add(broadcast(left[0]), (Floats)(right << 16), sum);
    return multiply_add(broadcast(left[1]), (Floats)(right & 0xffff0000u), sum);
  }
#endif
};

// sums[r][v] += left[r][word] * seen(word, its number, r), word after word of load(stored word, v).
template <int R, int N, typename Split, typename Load, typename Seen>
inline void multiply(const float* left, int stride, int stored_words, const Load& load, const Seen& seen,
                     Floats (&sums)[R][N]) {
  using Dot = cpu::Dot<typename Split::Element>;
  for (int stored = 0; stored < stored_words; ++stored, left += Split::parts * Dot::floats_per_word) {
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) {
      const Words words = load(stored, v);
#pragma GCC unroll 4
      for (int part = 0; part < Split::parts; ++part) {
        const Words right = Split::word(words, part);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
          sums[r][v] = Dot::add(sums[r][v], left + part * Dot::floats_per_word + r * stride,
                                seen(right, stored * Split::parts + part, r));
      }
    }
  }
}

// --- scores ---

// The score of each of the tile's rows with each key, in units of log 2: scores[row][key], also of keys that a row does not
// see.
template <typename Split>
void score_tile(const Split& split, const float* queries, float* scores) {
  const AttentionTile& tile = split.tile;
  const int rows = rows_of(tile), keys = split.keys_of(rows - 1), words = tile.head_dim / Split::in_stored;
  const int stride = words * Split::parts * Dot<typename Split::Element>::floats_per_word;
  const float scale = tile.scale * 0x1.715476p0f;  // log2(e)
  for (int first = 0; first < keys; first += key_vectors * lanes) {
    const uint32_t *vectors[key_vectors] = {}, *ahead[key_vectors] = {};
    for (int v = 0, key = first; v < key_vectors && key < keys; ++v, key += lanes) {
      vectors[v] = split.at(tile.keys, key & -position_group) + (key & (position_group - 1));
      ahead[v] = split.ahead(keys, key / position_group);
    }
    for_row_blocks(rows, [&]<int R>(int row) {
      const int left = split.keys_of(row + R - 1) - first;
      if (left <= 0) return;
      with_count<key_vectors>((left + lanes - 1) / lanes, [&]<int N>() {
        Floats sums[R][N] = {};
        const auto key_words = [&](int word, int v) {
          if (R <= wide_rows) __builtin_prefetch(ahead[v] + word * position_group, 0, 2);
          return load<Words>(vectors[v] + word * position_group);
        };
        const auto all = [](Words word, int, int) { return word; };
        multiply<R, N, Split>(queries + row * stride, stride, words, key_words, all, sums);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < N; ++v)
            store(scores + (row + r) * split_size + first + v * lanes, sums[r][v] * scale);
      });
    });
  }
}

// --- softmax ---

// Turns the scores of a row's keys into weights p, and those up to `end` into 0; a row without keys has maximum -inf and sum 0.
template <typename Element>
inline void exponentiate(float* scores, int keys, int end, float& maximum, float& sum) {
  constexpr float infinity = __builtin_inff();
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  const auto score_at = [&](int key) {
    const Floats score = load<Floats>(scores + key);
    return key + lanes <= keys ? score : lane < keys - key ? score : broadcast(-infinity);
  };
  Floats best = broadcast(-infinity);
  for (int key = 0; key < keys; key += lanes) {
    const Floats score = score_at(key);
    best = score > best ? score : best;
  }
  maximum = max_lanes(best);
  Floats total{};
  int key = 0;
  for (; key < keys; key += lanes) {
    const Floats p = exp2_nonpositive(score_at(key) - maximum);
    Dot<Element>::store_weights(scores, key, p);
    total += p;
  }
  for (; key < end; key += lanes) Dot<Element>::store_weights(scores, key, Floats{});
  sum = sum_lanes(total);
}

// --- values ---

// out[row][dimension] += weights[row] * values[dimension] for R rows, N vectors of dimensions and contiguous words of
// positions. masked: a row sees only so many positions, from the first word on; the others may hold NaN.
template <int R, int N, bool masked, typename Split>
inline void add_columns(const float* weights, const uint32_t* values, const uint32_t* ahead, const int* seen,
                        int head_dim, int words, float* out) {
  constexpr int in_word = Split::in_word;
  Floats sums[R][N];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) sums[r][v] = load<Floats>(out + r * head_dim + v * lanes);
  multiply<R, N, Split>(
      weights, split_size, words,
      [&](int word, int v) {
        if (R <= wide_rows) __builtin_prefetch(ahead + word * head_dim + v * lanes, 0, 2);
        return load<Words>(values + word * head_dim + v * lanes);
      },
      [&](Words value, int word, int r) {
        if (!masked) return value;
        const int left = seen[r] - word * in_word;
        return value & (left >= in_word ? ~0u : left > 0 ? 0xffffu : 0u);
      },
      sums);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) store(out + r * head_dim + v * lanes, sums[r][v]);
}

// The same over all dimensions, for positions [begin, end) of the split, block after block. begin: the first of a word.
template <int R, bool masked, typename Split>
inline void add_values(const Split& split, int row, int begin, int end, const float* weights, float* out) {
  using Element = typename Split::Element;
  constexpr int in_word = Split::in_word, in_stored = Split::in_stored;
  const int head_dim = split.tile.head_dim, block_size = 1 << split.tile.block_shift;
  const int keys = split.keys_of(row + R - 1), key_groups = (keys + position_group - 1) / position_group;
  for (int key = begin; key < end;) {
    const int size = R <= wide_rows ? position_group : block_size;
    const int count = min_of(end - key, size - static_cast<int>((split.start + key) & (size - 1)));
    const uint32_t *values = split.at(split.tile.values, key), *ahead = values;
    if (R <= wide_rows)
      ahead =
          split.ahead(keys, key_groups + key / position_group) + key % position_group / in_stored * head_dim;
    int seen[R];
    for (int r = 0; r < R; ++r) seen[r] = split.keys_of(row + r) - key;
    const float* p = weights + key / in_word * Dot<Element>::floats_per_word;
    const int words = (count + in_stored - 1) / in_stored;
    const auto add = [&]<int N>(int d) {
      add_columns<R, N, masked, Split>(p, values + d, ahead + d, seen, head_dim, words, out + d);
    };
    int d = 0;
    if constexpr (R <= wide_rows)
      for (; d + wide_values * lanes <= head_dim; d += wide_values * lanes)
        add.template operator()<wide_values>(d);
    for (; d + wide_values / 2 * lanes <= head_dim; d += wide_values / 2 * lanes)
      add.template operator()<wide_values / 2>(d);
    for (; d < head_dim; d += lanes) add.template operator()<1>(d);
    key += count;
  }
}

// --- the three steps ---

template <typename Element, typename Cached>
void attend_split(const AttentionTile& tile, int64_t index, float* scratch, float* partial) {
  using Split = cpu::Split<Element, Cached>;
  const Split split{tile, index * split_size};
  const int rows = rows_of(tile), head_dim = tile.head_dim;
  const int stride = head_dim / Split::in_word * Dot<Element>::floats_per_word;
  float* queries = scratch;
  float* scores = queries + attention_tile_rows * head_dim;
  for (int row = 0; row < rows; ++row)
    Dot<Element>::prepare(query_of<Element>(tile, row), head_dim, queries + row * stride);
  score_tile(split, queries, scores);

  float* maxima = partial + rows * head_dim;
  for (int i = 0; i < rows * head_dim; i += lanes) store(partial + i, Floats{});
  for_row_blocks(rows, [&]<int R>(int row) {
    const int end = split.keys_of(row + R - 1), whole = split.keys_of(row) & -Split::in_stored;
    float* weights = scores + row * split_size;
    for (int r = 0; r < R; ++r)
      exponentiate<Element>(weights + r * split_size, split.keys_of(row + r), end, maxima[row + r],
                            maxima[rows + row + r]);
    add_values<R, false>(split, row, 0, whole, weights, partial + row * head_dim);
    add_values<R, true>(split, row, whole, end, weights, partial + row * head_dim);
  });
  if constexpr (Split::parts > 1)
    for (int i = 0; i < rows * head_dim; i += lanes)
      store(partial + i, load<Floats>(partial + i) * tile.value_scale);
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
  if (bf16)
    return {attend_split<uint16_t, uint16_t>, merge_split, finish_tile<uint16_t>,
            attend_split<uint16_t, uint8_t>};
  return {attend_split<float, float>, merge_split, finish_tile<float>, attend_split<float, uint8_t>};
}

}  // namespace
}  // namespace maniple::cpu
