// A split of a tile of attention: its rows, and where their keys and values lie.
#pragma once

#include <kernels/cpu/attention_kernel.hpp>
#include <kernels/cpu/e4m3_lanes.inl>

namespace maniple::cpu {
namespace {

constexpr int split_size = 256;
constexpr float log2_e = 0x1.715476p0f;
// Register blocking: rows * key_vectors or rows * value vectors accumulators.
constexpr int max_rows = lanes == 16 ? 6 : 4;
constexpr int key_vectors = lanes == 16 ? 4 : 2;
constexpr int wide_values = lanes == 16 ? 8 : 4;  // for few rows
constexpr int wide_rows = lanes == 16 ? 3 : 2;    // so few that memory limits them: they prefetch
// Of positions, to prefetch into the second cache: the first one waits for too few lines at once.
constexpr int groups_ahead = 4;
// Latent rows are read by the scores and used again by the values: each of both fetches every other word of what comes next, lest memory
// idle in one of them (where a block holds a split). With fewer lanes loads of values are the limit: the scores fetch everything.
constexpr bool values_fetch(int word) { return lanes == 16 && word % 2 == 0; }

inline int min_of(int a, int b) { return a < b ? a : b; }
inline int max_of(int a, int b) { return a > b ? a : b; }
inline int rows_of(const AttentionTile& tile) { return tile.tokens * tile.group; }
template <typename Element>
inline const Element* query_of(const AttentionTile& tile, int row) {
  const int head = row % tile.group;
  return static_cast<const Element*>(tile.queries) + row / tile.group * tile.token_stride +
         head / tile.owner_heads * tile.owner_stride + head % tile.owner_heads * tile.key_dim;
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

// One split of a tile: positions [start + begin_of the row, start + keys_of the row) for each row. The cache holds the type of queries, or e4m3.
// latent_rows: keys lie as values.
template <typename Query, typename Cached, bool latent_rows = false>
struct Split {
  using Element = Query;
  static constexpr bool latent = latent_rows;
  static constexpr int in_word = 4 / sizeof(Element);  // dimensions of a key, positions of values
  static constexpr int in_stored = 4 / sizeof(Cached), parts = in_stored / in_word;  // words of a stored word
  const AttentionTile& tile;
  int64_t start;

  // Keys of the split that the row sees, possibly none.
  int keys_of(int row) const {
    const int64_t keys = tile.first_position + row / tile.group + 1 - start;
    return keys < 0 ? 0 : keys < split_size ? static_cast<int>(keys) : split_size;
  }
  // The first of them: those before it lie left of the row's window.
  int begin_of(int row) const {
    const int64_t begin = tile.first_position + row / tile.group + 1 - tile.window - start;
    const int keys = keys_of(row);
    return begin < 0 ? 0 : begin < keys ? static_cast<int>(begin) : keys;
  }
  // Where the tile begins to read: nothing before it is addressed.
  int first_key() const { return begin_of(0) & -position_group; }
  int group_words() const { return position_group * tile.key_dim / in_stored; }
  // Where the keys or values from a position of the split on lie: the first of a group, or of a word of values.
  const uint32_t* keys_at(int offset) const { return at(tile.keys, tile.key_stride, tile.key_dim, offset); }
  const uint32_t* values_at(int offset) const {
    return at(tile.values, tile.value_stride, tile.value_lanes, offset);
  }
  const uint32_t* at(const void* pages, int64_t block_stride, int stored_lanes, int offset) const {
    const int64_t position = start + offset;
    const int64_t in_block = position & ((int64_t{1} << tile.block_shift) - 1);
    return reinterpret_cast<const uint32_t*>(static_cast<const Cached*>(pages) +
                                             tile.blocks[position >> tile.block_shift] * block_stride +
                                             in_block * stored_lanes);
  }
  static Words word(Words stored, int part) {
    if constexpr (parts == 1) return stored;
    if constexpr (in_word == 2)
      return bf16_pairs(e4m3_values(stored, 8 * part), e4m3_values(stored, 8 * part + 16));
    return (Words)e4m3_values(stored, 8 * (part / 2) + 16 * (part % 2));
  }
  // What to prefetch at a key's group, or at that of its value: the group that is read groups_ahead later. Those of the split's keys are
  // read first, then those of its values, unless they are the same.
  const uint32_t* ahead(int keys, int key, bool of_value = false) const {
    const int first = first_key(), groups = (keys - first + position_group - 1) / position_group,
              next = (key - first) / position_group + (of_value ? groups : 0) + groups_ahead;
    if (next < groups) return keys_at(first + next * position_group);
    if (!latent && next < 2 * groups) return values_at(first + (next - groups) * position_group);
    return next_keys() + (next - (latent ? 1 : 2) * groups) * group_words();
  }
  // Where what is read after this split begins; if nobody knows, this split's keys, which are there.
  const uint32_t* next_keys() const {
    if (start + tile.next_split < tile.first_position + tile.tokens)
      return keys_at(static_cast<int>(tile.next_split));
    return tile.next_keys ? static_cast<const uint32_t*>(tile.next_keys) : keys_at(first_key());
  }
};

// Copies the rows of queries as the left side of a product; returns the floats from one to the next.
template <typename Dot, typename Element>
int prepare_queries(const AttentionTile& tile, float* queries) {
  const int stride = Dot::floats(tile.key_dim);
  for (int row = 0; row < rows_of(tile); ++row)
    Dot::prepare(query_of<Element>(tile, row), tile.key_dim, queries + row * stride);
  return stride;
}

}  // namespace
}  // namespace maniple::cpu
