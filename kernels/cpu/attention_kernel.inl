// Attention over one tile, written once and compiled for each instruction path.
//
// Both products multiply words of the left side (queries, then weights) with vectors of words from the cache, in the order in
// which cpu_pages.hpp stores them. Scores: a lane is a key, and a score is one sum over the dimensions, ascending. Values: a
// lane is a dimension, and an output is one sum over the positions, ascending. The bits of a row therefore do not depend on
// how many rows share a register block. Positions that a row does not see never enter its sums: a zero stands in their
// place before its window.
#include <kernels/cpu/attention_latent.inl>

namespace maniple::cpu {
namespace {

// --- products ---

// Multiplies a word of a row of the left side with a vector of words: one fp32 or two bf16 each.
template <typename Element>
struct Dot;
template <>
struct Dot<float> {
  static constexpr int floats_per_word = 1;
  static int floats(int key_dim) { return key_dim; }
  static void prepare(const float* from, int key_dim, float* to) {
    for (int d = 0; d < key_dim; d += lanes) store(to + d, load<Floats>(from + d));
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
  static int floats(int key_dim) { return key_dim / 2; }
  static void prepare(const uint16_t* from, int key_dim, float* to) {
    __builtin_memcpy(to, from, 2 * static_cast<unsigned>(key_dim));
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
  static int floats(int key_dim) { return key_dim; }
  static void prepare(const uint16_t* from, int key_dim, float* to) {
    for (int d = 0; d < key_dim; d += lanes) store(to + d, load_elements(from + d));
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
    if constexpr (Split::latent &&
                  lanes < 16) {  // broadcasts of a row take one register, not one for each row
      Words words[N];
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) words[v] = load(stored, v);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v)
          sums[r][v] = Dot::add(sums[r][v], left + r * stride, seen(words[v], stored, r));
      continue;
    }
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
void score_tile(const Split& split, float* queries, float* scores) {
  const AttentionTile& tile = split.tile;
  const int rows = rows_of(tile), keys = split.keys_of(rows - 1), words = tile.key_dim / Split::in_stored;
  const int stride = prepare_queries<Dot<typename Split::Element>, typename Split::Element>(tile, queries);
  const float scale = tile.scale * log2_e;
  for (int first = split.first_key(); first < keys; first += key_vectors * lanes) {
    const uint32_t *vectors[key_vectors] = {}, *ahead[key_vectors] = {};
    for (int v = 0, key = first; v < key_vectors && key < keys; ++v, key += lanes) {
      vectors[v] = split.keys_at(key & -position_group) + (key & (position_group - 1));
      ahead[v] = split.ahead(keys, key);
    }
    for_row_blocks(rows, [&]<int R>(int row) {
      const int left = split.keys_of(row + R - 1) - first;
      if (left <= 0 || split.begin_of(row) >= first + key_vectors * lanes) return;
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

struct Range {
  int begin, end;
};

// Turns the scores of a row's keys into weights p, and the others of `all` into 0; a row without keys has maximum -inf and sum 0.
template <typename Element>
inline void exponentiate(float* scores, Range keys, Range all, float& maximum, float& sum) {
  constexpr float infinity = __builtin_inff();
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  const auto score_at = [&](int key) {
    const Floats score = load<Floats>(scores + key);
    if (keys.begin <= key && key + lanes <= keys.end) return score;
    const Ints seen = (lane >= keys.begin - key) & (lane < keys.end - key);
    return seen ? score : broadcast(-infinity);
  };
  const int first = keys.begin & -lanes;
  Floats best = broadcast(-infinity);
  for (int key = first; key < keys.end; key += lanes) {
    const Floats score = score_at(key);
    best = score > best ? score : best;
  }
  maximum = max_lanes(best);
  Floats total{};
  int key = all.begin & -lanes;
  for (; key < first; key += lanes) Dot<Element>::store_weights(scores, key, Floats{});
  for (; key < keys.end; key += lanes) {
    const Floats p = exp2_nonpositive(score_at(key) - maximum);
    Dot<Element>::store_weights(scores, key, p);
    total += p;
  }
  for (; key < all.end; key += lanes) Dot<Element>::store_weights(scores, key, Floats{});
  sum = sum_lanes(total);
}

// --- values ---

// out[row][dimension] += weights[row] * values[dimension] for R rows, N vectors of dimensions and contiguous words of
// positions. masked: a row sees only these positions, counted from the first word on; the others may hold NaN.
template <int R, int N, bool masked, typename Split>
inline void add_columns(const float* weights, const uint32_t* values, const uint32_t* ahead,
                        const Range* seen, const AttentionTile& tile, int words, float* out) {
  const int value_lanes = tile.value_lanes, value_dim = tile.value_dim;
  constexpr int in_word = Split::in_word;
  Floats sums[R][N];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) sums[r][v] = load<Floats>(out + r * value_dim + v * lanes);
  multiply<R, N, Split>(
      weights, split_size, words,
      [&](int word, int v) {
        if (Split::latent ? ahead && values_fetch(word) : R <= wide_rows)
          __builtin_prefetch(ahead + word * value_lanes + v * lanes, 0, 2);
        return load<Words>(values + word * value_lanes + v * lanes);
      },
      [&](Words value, int word, int r) {
        if (!masked) return value;
        const int left = seen[r].end - word * in_word, hidden = seen[r].begin - word * in_word;
        return value &
               (left >= in_word ? ~0u
                : left > 0      ? 0xffffu
                                : 0u) &
               (hidden <= 0        ? ~0u
                : hidden < in_word ? 0xffff0000u
                                   : 0u);
      },
      sums);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) store(out + r * value_dim + v * lanes, sums[r][v]);
}

// The same over some dimensions, for positions of the split, block after block. positions.begin: the first of a word.
template <int R, bool masked, typename Split>
inline void add_values(const Split& split, int row, Range positions, Range columns, const float* weights,
                       float* out) {
  using Element = typename Split::Element;
  constexpr int in_word = Split::in_word, in_stored = Split::in_stored;
  const int block_size = 1 << split.tile.block_shift;
  const int keys = split.keys_of(row + R - 1);
  for (int key = positions.begin; key < positions.end;) {
    const int size = R <= wide_rows ? position_group : block_size;
    const int count = min_of(positions.end - key, size - static_cast<int>((split.start + key) & (size - 1)));
    const uint32_t *values = split.values_at(key), *ahead = nullptr;
    if (Split::latent && row == 0)
      ahead = split.next_keys() + key / in_stored * split.tile.value_lanes;
    else if (!Split::latent && R <= wide_rows)
      ahead = split.ahead(keys, key, true) + key % position_group / in_stored * split.tile.value_lanes;
    Range seen[R];
    for (int r = 0; r < R; ++r) seen[r] = {split.begin_of(row + r) - key, split.keys_of(row + r) - key};
    const float* p = weights + key / in_word * Dot<Element>::floats_per_word;
    const int words = (count + in_stored - 1) / in_stored;
    const auto add = [&]<int N>(int d) {
      add_columns<R, N, masked, Split>(p, values + d, ahead ? ahead + d : nullptr, seen, split.tile, words,
                                       out + d);
    };
    int d = columns.begin;
    if constexpr (R <= wide_rows)
      for (; d + wide_values * lanes <= columns.end; d += wide_values * lanes)
        add.template operator()<wide_values>(d);
    for (; d + wide_values / 2 * lanes <= columns.end; d += wide_values / 2 * lanes)
      add.template operator()<wide_values / 2>(d);
    for (; d < columns.end; d += lanes) add.template operator()<1>(d);
    key += count;
  }
}

// --- the three steps ---

template <typename Element, typename Cached, bool latent = false>
void attend_split(const AttentionTile& tile, int64_t index, float* scratch, float* partial) {
  using Split = cpu::Split<Element, Cached, latent>;
  const Split split{tile, index * split_size};
  const int rows = rows_of(tile), value_dim = tile.value_dim;
  float* queries = scratch;
  float* scores = queries + attention_tile_rows * tile.key_dim;
  if constexpr (latent)
    score_latent_rows(split, queries, scores);
  else
    score_tile(split, queries, scores);

  float* maxima = partial + rows * value_dim;
  for (int i = 0; i < rows * value_dim; i += lanes) store(partial + i, Floats{});
  const auto weigh = [&](int row, int count) {
    for (int r = row; r < row + count; ++r)
      exponentiate<Element>(scores + r * split_size, {split.begin_of(r), split.keys_of(r)},
                            {split.begin_of(row), split.keys_of(row + count - 1)}, maxima[r],
                            maxima[rows + r]);
  };
  // Positions that all rows see lie between those that only some do.
  const auto add = [&]<int R>(int row, Range keys, Range columns) {
    constexpr int in_stored = Split::in_stored;
    const int begin = max_of(split.begin_of(row) & -in_stored, keys.begin),
              end = min_of(split.keys_of(row + R - 1), keys.end),
              first = min_of(max_of((split.begin_of(row + R - 1) + in_stored - 1) & -in_stored, begin), end),
              last = max_of(min_of(split.keys_of(row) & -in_stored, end), first);
    float *weights = scores + row * split_size, *out = partial + row * value_dim;
    const Range parts[] = {{begin, first}, {first, last}, {last, end}};
    for (int i = 0; i < 3; ++i)  // a loop, so that each product is compiled once
      if (i == 1)
        add_values<R, false>(split, row, parts[i], columns, weights, out);
      else
        add_values<R, true>(split, row, parts[i], columns, weights, out);
  };
  if constexpr (latent) {
    for_row_blocks(rows, [&]<int R>(int row) { weigh(row, R); });
    // Some columns of some positions stay in the first cache while all rows pass.
    constexpr int chunk = split_size / 2, columns = wide_values * lanes;
    for (int begin = 0; begin < split.keys_of(rows - 1); begin += chunk)
      for (int d = 0; d < value_dim; d += columns)
        for_row_blocks(rows, [&]<int R>(int row) {
          add.template operator()<R>(row, {begin, begin + chunk}, {d, min_of(d + columns, value_dim)});
        });
  } else {
    for_row_blocks(rows, [&]<int R>(int row) {
      weigh(row, R);
      add.template operator()<R>(row, {0, split_size}, {0, value_dim});
    });
  }
  if constexpr (Split::parts > 1)
    for (int i = 0; i < rows * value_dim; i += lanes)
      store(partial + i, load<Floats>(partial + i) * tile.value_scale);
}

void merge_split(const AttentionTile& tile, const float* partial, float* total) {
  const int rows = rows_of(tile), value_dim = tile.value_dim;
  const float* maxima = partial + rows * value_dim;
  float* total_maxima = total + rows * value_dim;
  for (int row = 0; row < rows; ++row) {
    if (maxima[rows + row] == 0) continue;  // the row sees nothing of the split
    if (total_maxima[rows + row] == 0) {
      __builtin_memcpy(total + row * value_dim, partial + row * value_dim,
                       4 * static_cast<unsigned>(value_dim));
      total_maxima[row] = maxima[row];
      total_maxima[rows + row] = maxima[rows + row];
      continue;
    }
    const float maximum = maxima[row] > total_maxima[row] ? maxima[row] : total_maxima[row];
    const Floats old_weight = exp2_nonpositive(broadcast(total_maxima[row] - maximum));
    const Floats new_weight = exp2_nonpositive(broadcast(maxima[row] - maximum));
    for (int i = row * value_dim; i < (row + 1) * value_dim; i += lanes)
      store(total + i,
            multiply_add(load<Floats>(partial + i), new_weight, load<Floats>(total + i) * old_weight));
    total_maxima[row] = maximum;
    total_maxima[rows + row] = multiply_add(broadcast(maxima[rows + row]), new_weight,
                                            broadcast(total_maxima[rows + row]) * old_weight)[0];
  }
}

void add_sink(const AttentionTile& tile, int row, float* total) {
  const int rows = rows_of(tile), value_dim = tile.value_dim;
  float &maximum = total[rows * value_dim + row], &sum = total[rows * value_dim + rows + row];
  const float sink = tile.sinks[row % tile.group] * log2_e, larger = maximum > sink ? maximum : sink;
  const Floats old_weight = exp2_nonpositive(broadcast(maximum - larger)),
               sink_weight = exp2_nonpositive(broadcast(sink - larger));
  for (int i = row * value_dim; i < (row + 1) * value_dim; i += lanes)
    store(total + i, load<Floats>(total + i) * old_weight);
  maximum = larger;
  sum = multiply_add(broadcast(sum), old_weight, sink_weight)[0];
}

template <typename Element>
void finish_tile(const AttentionTile& tile, float* total) {
  const int rows = rows_of(tile), value_dim = tile.value_dim;
  const float* sums = total + rows * value_dim + rows;
  for (int row = 0; row < rows; ++row) {
    if (tile.sinks) add_sink(tile, row, total);
    Element* out =
        static_cast<Element*>(tile.out) + row / tile.group * tile.out_stride + row % tile.group * value_dim;
    for (int d = 0; d < value_dim; d += lanes)
      store_elements(out + d, load<Floats>(total + row * value_dim + d) / sums[row]);
  }
}

inline AttentionKernel attention_kernel(bool bf16) {
  if (bf16)
    return {attend_split<uint16_t, uint16_t>, merge_split, finish_tile<uint16_t>,
            attend_split<uint16_t, uint8_t>, attend_split<uint16_t, uint16_t, true>};
  return {attend_split<float, float>, merge_split, finish_tile<float>, attend_split<float, uint8_t>,
          attend_split<float, float, true>};
}

}  // namespace
}  // namespace maniple::cpu
