// Attention over one tile by products of 16 rows with 16 keys, or 16 dimensions of values, of a cache of bf16 or e4m3.
// Tiles is AmxTiles, or in the tests a plain C++ class with the same members.
//
// One instruction adds 32 dimensions, or 32 positions; the next one follows. Weights are rounded to bf16. The bits of a row do
// not depend on the rows beside it. Rows between the tile's last one and a multiple of 16 hold anything; nobody reads them.
#include <kernels/cpu/attention_kernel.inl>

namespace maniple::cpu {
namespace {

struct WeightsOfTiles {};
template <>
struct Dot<WeightsOfTiles> {
  static void store_weights(float* row, int key, Floats weights) {
    store_elements(reinterpret_cast<uint16_t*>(row) + key, weights);
  }
};

template <typename Tiles, typename Cached, bool latent = false>
class TileAttention {
 public:
  static constexpr int step = 32;  // dimensions of a key, or positions, of one product

  TileAttention(const AttentionTile& tile, int64_t index)
      : tile_(tile),
        split_{tile, index * split_size},
        any_sees_{split_.begin_of(0), split_.keys_of(rows_of(tile) - 1)},
        all_see_{split_.begin_of(rows_of(tile) - 1), split_.keys_of(0)} {}

  void run(float* scratch, float* partial) {
    float* const scores = scratch + attention_tile_rows * tile_.key_dim;
    with_count<attention_tile_rows / height>((rows_of(tile_) + height - 1) / height, [&]<int R>() {
      if constexpr (latent)
        score_latent_rows<R>(scratch, scores);
      else
        score<R>(scratch, scores);
      exponentiate_rows(scores, partial + rows_of(tile_) * tile_.value_dim);
      add_values<R>(scores, scratch);
    });
    take(scores, scratch, partial);
  }

 private:
  using Split = cpu::Split<uint16_t, Cached, latent>;
  static constexpr int height = 16, depth = 16, width = 16;  // rows, words of a row, columns of a tile
  static constexpr int left_tile = 3, right_tile = 6;        // 0..2 are sums
  static constexpr int64_t tile_bytes = width * 4;

  template <int R, int r = 0, typename F>
  static void for_tiles(const F& f) {
    f.template operator()<r>();
    if constexpr (r + 1 < R) for_tiles<R, r + 1>(f);
  }

  // out [R x 16][16] = left * right; left: rows of bf16, `stride` elements apart; load(i): loads the i-th step of the right side.
  template <int R, typename Load>
  void multiply(const uint16_t* left, int64_t stride, int steps, const Load& load, float* out,
                int64_t out_stride) {
    for_tiles<R>([&]<int r>() { tiles_.template zero<r>(); });
    for (int i = 0; i < steps; ++i) {
      load(i);
      for_tiles<R>([&]<int r>() {
        tiles_.template load<left_tile + r>(left + r * height * stride + i * step, 2 * stride);
        tiles_.template dot<r, left_tile + r, right_tile>();
      });
    }
    for_tiles<R>([&]<int r>() { tiles_.template store<r>(out + r * height * out_stride, 4 * out_stride); });
  }

  // scores [row][key], in units of log 2, also of keys that a row does not see.
  template <int R>
  void score(float* queries, float* scores) {
    const int rows = rows_of(tile_), key_dim = tile_.key_dim;
    auto* const left = reinterpret_cast<uint16_t*>(queries);
    __builtin_memset(left, 0, 2 * static_cast<size_t>(R * height * key_dim));
    for (int row = 0; row < rows; ++row)
      __builtin_memcpy(left + row * key_dim, query_of<uint16_t>(tile_, row),
                       2 * static_cast<size_t>(key_dim));
    const float scale = tile_.scale * log2_e;
    for (int key = split_.first_key(); key < any_sees_.end; key += position_group) {
      const uint32_t* const words = split_.keys_at(key);
      // The products with values take 16 columns of all positions at a time, too scattered to be fetched then.
      const uint32_t *const ahead = split_.ahead(any_sees_.end, key), *const values = split_.values_at(key);
      multiply<R>(
          left, key_dim, key_dim / step,
          [&](int i) {
            const int stored = i * depth / Split::parts;
            for (int word = 0; R == 1 && word < depth / Split::parts; ++word) {
              __builtin_prefetch(ahead + (stored + word) * position_group, 0, 2);
              __builtin_prefetch(values + (stored + word) * position_group, 0, 2);
            }
            load_keys(words + stored * position_group);
          },
          scores + key, split_size);
      for (int row = 0; row < rows; ++row)
        for (float* score = scores + row * split_size + key; score < scores + row * split_size + key + width;
             score += lanes)
          store(score, load<Floats>(score) * scale);
    }
  }

  // The same of latent rows. They are the left side here, one by one, and queries the right one, in pairs of dimensions: the products
  // are scores by key.
  template <int R>
  void score_latent_rows(float* scratch, float* scores) {
    const int rows = rows_of(tile_), key_dim = tile_.key_dim, steps = key_dim / step;
    auto* const right = reinterpret_cast<uint32_t*>(scratch);  // [R][pairs][16 rows]
    const int row_words = key_dim / 2, tile_words = height * row_words;
    auto* const left = reinterpret_cast<uint16_t*>(right + R * tile_words);  // [16 keys][key_dim]
    __builtin_memset(right, 0, 4 * static_cast<size_t>(R * tile_words));
    for (int row = 0; row < rows; ++row) {
      const uint16_t* const query = query_of<uint16_t>(tile_, row);
      for (int pair = 0; pair < row_words; ++pair)
        __builtin_memcpy(right + row / width * tile_words + pair * width + row % width, query + 2 * pair, 4);
    }
    const float scale = tile_.scale * log2_e;
    for (int first = 0; first < any_sees_.end; first += position_group) {
      separate(split_.keys_at(first), split_.ahead(any_sees_.end, first), left);
      for_tiles<R>([&]<int r>() { tiles_.template zero<r>(); });
      for (int i = 0; i < steps; ++i) {
        tiles_.template load<left_tile>(left + i * step, 2 * key_dim);
        for_tiles<R>([&]<int r>() {
          tiles_.template load<right_tile>(right + r * tile_words + i * depth * width, tile_bytes);
          tiles_.template dot<r, left_tile, right_tile>();
        });
      }
      for_tiles<R>([&]<int r>() {
        alignas(64) float by_key[position_group][width];
        tiles_.template store<r>(by_key, sizeof by_key[0]);
        for (int row = r * width; row < min_of(rows, (r + 1) * width); ++row)
          for (int key = 0; key < position_group; ++key)
            scores[row * split_size + first + key] = by_key[key][row % width] * scale;
      });
    }
  }

  // Pairs of positions to rows, of a group.
  void separate(const uint32_t* words, const uint32_t* ahead, uint16_t* rows) const {
    const int key_dim = tile_.key_dim;
    for (int pair = 0; pair < position_group / 2;
         ++pair, words += key_dim, ahead += key_dim, rows += 2 * key_dim)
      for (int d = 0; d < key_dim; d += lanes) {
        __builtin_prefetch(ahead + d, 0, 2);
        const Words both = load<Words>(words + d);
        store(rows + d, __builtin_convertvector(both & 0xffffu, Halves));
        store(rows + key_dim + d, __builtin_convertvector(both >> 16, Halves));
      }
  }

  void load_keys(const uint32_t* words) {
    if constexpr (Split::parts == 1) return tiles_.template load<right_tile>(words, tile_bytes);
    widen(words, position_group, depth / Split::parts, right_);
    tiles_.template load<right_tile>(right_, tile_bytes);
  }

  // to [words x parts][16] = pairs of bf16.
  static void widen(const uint32_t* words, int64_t stride, int count, uint32_t* to) {
    for (int word = 0; word < count; ++word)
      for (int column = 0; column < width; column += lanes) {
        const Words stored = load<Words>(words + word * stride + column);
        for (int part = 0; part < Split::parts; ++part)
          store(to + (word * Split::parts + part) * width + column, Split::word(stored, part));
      }
  }

  void exponentiate_rows(float* scores, float* maxima) const {
    const int rows = rows_of(tile_);
    const Range all{any_sees_.begin & -step, (any_sees_.end + step - 1) & -step};
    for (int row = 0; row < rows; ++row)
      exponentiate<WeightsOfTiles>(scores + row * split_size, {split_.begin_of(row), split_.keys_of(row)},
                                   all, maxima[row], maxima[rows + row]);
  }

  // out [row][value_dim]
  template <int R>
  void add_values(const float* weights, float* out) {
    const int first = any_sees_.begin & -step, steps = (any_sees_.end - first + step - 1) / step;
    for (int d = 0; d < tile_.value_dim; d += width)
      multiply<R>(
          reinterpret_cast<const uint16_t*>(weights) + first, 2 * split_size, steps,
          [&](int i) { load_values(first + i * step, d); }, out + d, tile_.value_dim);
  }

  void load_values(int first, int d) {
    const bool in_place = Split::parts == 1 && all_see(first, step) && tile_.block_shift >= 5;
    if (in_place) return tiles_.template load<right_tile>(split_.values_at(first) + d, 4 * tile_.value_lanes);
    for (int half = 0; half < 2; ++half) {
      const int key = first + half * position_group;
      uint32_t* const to = right_ + half * depth / 2 * width;
      if (split_.first_key() <= key && key < any_sees_.end)
        widen(split_.values_at(key) + d, tile_.value_lanes, depth / 2 / Split::parts, to);
      for (int pair = 0; pair < depth / 2; ++pair) hide_unseen(key + 2 * pair, to + pair * width);
    }
    tiles_.template load<right_tile>(right_, tile_bytes);
  }

  // Whether every row sees these positions.
  bool all_see(int first, int count) const {
    return all_see_.begin <= first && first + count <= all_see_.end;
  }

  // Of a pair of positions: those that no row sees, and numbers that are not finite where only some rows see them. Weights of 0
  // would not hide them.
  void hide_unseen(int key, uint32_t* pair) {
    if (all_see(key, 2)) return;
    for (int second = 0; second < 2; ++second) {
      const int position = key + second;
      if (all_see(position, 1)) continue;
      const uint32_t mask = second ? 0xffff0000u : 0xffffu, exponent = mask & 0x7f807f80u;
      const bool some_see = any_sees_.begin <= position && position < any_sees_.end;
      for (int column = 0; column < width; column += lanes) {
        const Words words = load<Words>(pair + column), not_finite = (Words)((words & exponent) == exponent);
        store(pair + column, words & ~(some_see ? not_finite & mask : Words{} + mask));
        if (some_see) hidden_ |= not_finite;
      }
    }
  }

  // Moves the sums of the tile's rows to partial.
  void take(const float* weights, const float* sums, float* partial) const {
    for (int row = 0; row < rows_of(tile_); ++row)
      for (int d = 0; d < tile_.value_dim; d += lanes) {
        const int at = row * tile_.value_dim + d;
        store(partial + at, load<Floats>(sums + at) * tile_.value_scale);
      }
    bool any_hidden = false;
    for (int lane = 0; lane < lanes; ++lane) any_hidden |= hidden_[lane] != 0;
    if (any_hidden) add_hidden(reinterpret_cast<const uint16_t*>(weights), partial);
  }

  // What hide_unseen took from rows that see it: they are no numbers, whatever else is added.
  void add_hidden(const uint16_t* weights, float* partial) const {
    for (int key = any_sees_.begin; key < any_sees_.end; ++key) {
      if (all_see(key, 1)) continue;
      for (int d = 0; d < tile_.value_dim; ++d) {
        const float value = value_at(key, d);
        if (value - value == 0) continue;
        for (int row = 0; row < rows_of(tile_); ++row)
          if (split_.begin_of(row) <= key && key < split_.keys_of(row))
            partial[row * tile_.value_dim + d] += wide(weights[row * 2 * split_size + key]) * value;
      }
    }
  }
  float value_at(int key, int d) const {
    const int group = key & -position_group, word = (key - group) / Split::in_stored;
    uint32_t pair[2 * lanes];
    const Words stored = Words{} + split_.values_at(group)[word * tile_.value_lanes + d];
    const int in_word = (key - group) % Split::in_stored;
    store(pair, Split::word(stored, in_word / 2));
    return wide(static_cast<uint16_t>(pair[0] >> 16 * (in_word % 2)));
  }
  static float wide(uint16_t bf16) {
    const uint32_t bits = uint32_t{bf16} << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }

  const AttentionTile& tile_;
  const Split split_;
  const Range any_sees_, all_see_;  // positions that some row sees, that every row does
  Words hidden_{};                  // where hide_unseen took a number that some row sees
  alignas(64) uint32_t right_[depth * width] = {};
  Tiles tiles_;
};

// Keys that no whole number of steps makes up take the vectors' way.
template <typename Tiles, typename Cached, bool latent = false>
void attend_split_in_tiles(const AttentionTile& tile, int64_t index, float* scratch, float* partial) {
  if (tile.key_dim % TileAttention<Tiles, Cached>::step != 0)
    return attend_split<uint16_t, Cached, latent>(tile, index, scratch, partial);
  TileAttention<Tiles, Cached, latent>(tile, index).run(scratch, partial);
}

template <typename Tiles>
AttentionKernel attention_kernel_of_tiles() {
  return {attend_split_in_tiles<Tiles, uint16_t>, merge_split, finish_tile<uint16_t>,
          attend_split_in_tiles<Tiles, uint8_t>, attend_split_in_tiles<Tiles, uint16_t, true>};
}

}  // namespace
}  // namespace maniple::cpu
