// Attention of the sequences with several queries (prompts, or chunks after
// a cached prefix) over the paged cache, on tensor cores: bf16 and fp16.
//
// A block takes some queries of one sequence with all query heads of one KV head: these rows read the same
// keys and values. Its tiles of keys begin at multiples of their size in the context, so a row's bits do not
// depend on its chunk or on the rest of the batch.
#include <kernels/cuda/attention_places.hpp>
#include <kernels/cuda/attention_tiles.hpp>
#include <kernels/cuda/reductions.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int warps = 4;

// Row r of a sequence is query r / group with the KV head's query head r % group. Blocks [first_block(s),
// first_block(s + 1)) suffice for the rows of sequence s, so no prefix sum over the sequences is needed.
__device__ int first_block(const AttentionArguments& a, int sequence, int rows) {
  const int64_t before = static_cast<int64_t>(a.query_starts[sequence]) * (a.query_heads / a.kv_heads);
  return static_cast<int>(before / rows) + sequence;
}
__device__ int sequence_of(const AttentionArguments& a, int block, int rows) {
  int begun = 0;
  for (int s = thread_index(); s < a.sequences; s += block_threads())
    begun += first_block(a, s, rows) <= block;
  return block_sum(begun, reinterpret_cast<int*>(shared_memory())) - 1;
}

// The work of the block, in shared memory because registers are full.
struct Rows {
  const int32_t* table;
  int kv_head;
  int group;
  uint32_t of_group;  // 2^32 / group, rounded up, for quotients in tiles
  int first_token;    // of the sequence
  int past;
  int context;
  int count;        // of the sequence
  int first;        // of the block
  int block_shift;  // position >> this is the block of the table
};
__device__ Rows rows_of(const AttentionArguments& a, int sequence, int block, int kv_head, int rows) {
  const int group = a.query_heads / a.kv_heads, first_token = a.query_starts[sequence];
  const int queries = a.query_starts[sequence + 1] - first_token;
  int block_shift = 0;
  while (1 << block_shift < a.block_size) ++block_shift;
  return {block_table(a, sequence),
          kv_head,
          group,
          0xffffffffu / static_cast<uint32_t>(group) + 1,
          first_token,
          a.past_lengths[sequence],
          a.past_lengths[sequence] + queries,
          queries * group,
          (block - first_block(a, sequence, rows)) * rows,
          block_shift};
}

// Keys and values have two tiles each, one of them in flight. Two stages of codes take the memory of one of elements, the other is what
// they are widened to. 128 dimensions take 96 KiB: two blocks per SM on sm_90, one where an SM has 100 KiB.
template <typename T, typename Kept, int dims, int row_tiles>
class Prefill {
 public:
  static constexpr bool codes = sizeof(Kept) == 1;
  static constexpr int rows = warps * 16 * row_tiles;  // of queries per block
  static constexpr int keys = dims <= 128 ? 64 : 32;   // per step
  static constexpr int stage = 2 * keys * dims;        // elements: keys, then values
  static constexpr int elements = rows * dims + 2 * stage;
  // The dynamic shared memory of a block.
  static constexpr size_t shared_bytes = elements * sizeof(T) + sizeof(Rows) + rows * sizeof(int);

  __device__ Prefill(const AttentionArguments& a)
      : a_(a),
        rows_(*reinterpret_cast<Rows*>(queries() + elements)),
        row_index_(reinterpret_cast<int*>(&rows_ + 1)) {
    const int block = grid_size().x - 1 - block_index().x;  // later rows have more work, so they start first
    const int sequence = sequence_of(a, block, rows);
    if (thread_index() == 0) rows_ = rows_of(a, sequence, block, block_index().y, rows);
    synchronize_block();
    for (int i = thread_index(); i < rows; i += block_threads()) {
      const int row = rows_.first + i, head = rows_.kv_head * rows_.group + row % rows_.group;
      row_index_[i] = static_cast<int>(query_row(a, rows_.first_token + row / rows_.group, head));
    }
    synchronize_block();
  }

  __device__ void run() {
    if (rows_.count <= rows_.group || rows_.first >= rows_.count)
      return;  // a decode sequence, or a spare block
    const int warp_row = rows_.first + warp_index() * 16 * row_tiles;
    const int last_row = rows_.first + rows < rows_.count ? rows_.first + rows - 1 : rows_.count - 1;
    const int tiles = tiles_until(position_of(last_row));
    WarpAttention<T, dims, row_tiles> attention;
    copy_queries();
    int page = page_of(0);
    copy_keys_and_values(0, page);
    page = page_of(1);
    for (int tile = 0; tile < tiles; ++tile) {
      wait_copies<0>();
      synchronize_block();  // and all warps are done with the previous tile
      if (tile + 1 < tiles) copy_keys_and_values(tile + 1, page);
      page = page_of(tile + 2);
      if constexpr (codes) widen(tile);
      if (warp_row < rows_.count) attend(attention, tile, codes ? warp_row : computed_here(warp_row));
    }
    wait_copies<0>();  // of an owner that has no tile
    attention.finish();
    write(attention, warp_row);
  }

 private:
  // In shared memory, whose address is a constant: no register holds it.
  __device__ static T* queries() { return reinterpret_cast<T*>(shared_memory()); }
  __device__ static T* stages() { return queries() + rows * dims; }
  // Exact where row * group is below 2^32. A group of one has no reciprocal of 32 bits.
  __device__ int position_of(int row) const {
    return rows_.past +
           (rows_.of_group == 0 ? row : static_cast<int>(static_cast<uint64_t>(row) * rows_.of_group >> 32));
  }
  // In queries and out.
  __device__ int64_t row_of(int row) const { return row_index_[row - rows_.first]; }

  __device__ void copy_queries() {
    constexpr int chunks = dims / 8;
    for (int chunk = thread_index(); chunk < rows * chunks; chunk += block_threads()) {
      const int row = rows_.first + chunk / chunks;
      const bool valid = row < rows_.count;
      copy_async(
          queries() + swizzled<dims>(chunk / chunks, chunk % chunks),
          static_cast<const T*>(a_.queries) + row_of(valid ? row : rows_.first) * dims + chunk % chunks * 8,
          valid);
    }
  }

  // Tiles are those of this owner's splits.
  static constexpr int split_tiles = split_size / keys;
  __device__ int tile_begin(int tile) const {
    return split_begin(a_, tile / split_tiles) + tile % split_tiles * keys;
  }
  // Those that begin at or before a position.
  __device__ int tiles_until(int position) const {
    const int last = position / split_size, before = own_splits(a_, last) * split_tiles;
    return last % a_.owners == a_.owner ? before + position % split_size / keys + 1 : before;
  }

  // A warp copies a quarter of a tile. One page holds the whole quarter.
  static constexpr int quarter = keys / warps;
  __device__ int quarter_begin(int tile) const { return tile_begin(tile) + warp_index() * quarter; }
  __device__ int page_of(int tile) const {
    const int position = quarter_begin(tile);
    return position < rows_.context ? rows_.table[position >> rows_.block_shift] : 0;
  }
  // Zeros after the context: a position that no token wrote may hold NaN, which a weight of zero would keep.
  __device__ void copy_keys_and_values(int tile, int page) {
    // No place of a copy stays in registers from tile to tile where that would spill others.
    const int lane = dims <= 128 ? computed_here(lane_index()) : lane_index();
    const int warp = dims <= 128 && !codes ? computed_here(warp_index()) : warp_index();
    const int position = tile_begin(tile) + warp * quarter;
    const int64_t from = ((static_cast<int64_t>(page) * a_.kv_heads + rows_.kv_head) * a_.block_size +
                          place_in_block(a_, position)) *
                         dims;
    Kept* const to = kept(tile) + warp * quarter * dims;
    copy_rows<quarter, dims>(to, static_cast<const Kept*>(a_.keys) + from, rows_.context - position, lane);
    copy_rows<quarter, dims>(to + keys * dims, static_cast<const Kept*>(a_.values) + from,
                             rows_.context - position, lane);
    commit_copies();
  }
  // Each warp widens the quarter that it copied.
  __device__ void widen(int tile) {
    for (int first = warp_index() * quarter * dims; first < stage; first += keys * dims)
      widen_rows<quarter, dims>(stages() + first, kept(tile) + first);
    synchronize_block();
  }
  // A stage as it is in the cache.
  __device__ Kept* kept(int tile) const {
    return reinterpret_cast<Kept*>(stages() + (codes ? stage : 0)) + tile % 2 * stage;
  }

  __device__ void attend(WarpAttention<T, dims, row_tiles>& attention, int tile, int warp_row) const {
    const int begin = tile_begin(tile), last = warp_row + 16 * row_tiles - 1;
    if (begin > position_of(last < rows_.count ? last : rows_.count - 1)) return;
    const T* const key_tile = stages() + (codes ? 0 : tile % 2 * stage);
    float scores[row_tiles][keys / 8][4] = {};
    attention.template score<keys>(scores, queries() + (warp_row - rows_.first) * dims, key_tile);
    if (begin + keys > position_of(warp_row) + 1) mask(scores, begin, warp_row);
    attention.template weigh<keys>(scores, a_.scale * log2_e);
    attention.template add_values<keys>(scores, key_tile + keys * dims);
  }

  __device__ void mask(float (&scores)[row_tiles][keys / 8][4], int begin, int warp_row) const {
    for (int i = 0; i < 2 * row_tiles; ++i) {
      const int seen = position_of(warp_row + 8 * i + lane_index() / 4) - begin - 2 * (lane_index() % 4);
      for (int n = 0; n < keys / 8; ++n)
        for (int j = 0; j < 2; ++j)
          if (8 * n + j > seen) scores[i / 2][n][i % 2 * 2 + j] = -INFINITY;
    }
  }

  __device__ void write(const WarpAttention<T, dims, row_tiles>& attention, int warp_row) const {
    for (int i = 0; i < 2 * row_tiles; ++i) {
      const int row = warp_row + 8 * i + lane_index() / 4;
      if (row >= rows_.count) continue;
      if (a_.owners > 1) {
        write_partial(attention, i, partial_row(a_, row_of(row)));
        continue;
      }
      T* const to = static_cast<T*>(a_.out) + row_of(row) * dims + 2 * (lane_index() % 4);
      const float factor = a_.value_scale / attention.total[i];
      for (int n = 0; n < dims / 8; ++n) {
        const float* const pair = attention.sum[i / 2][n] + i % 2 * 2;
        *reinterpret_cast<uint32_t*>(to + 8 * n) = packed_pair<T>(pair[0] * factor, pair[1] * factor);
      }
    }
  }

  __device__ void write_partial(const WarpAttention<T, dims, row_tiles>& attention, int i, float* row) const {
    const int column = 2 * (lane_index() % 4);
    for (int n = 0; n < dims / 8; ++n)
      for (int j = 0; j < 2; ++j)
        row[8 * n + column + j] = attention.sum[i / 2][n][i % 2 * 2 + j] * a_.value_scale;
    if (column > 0) return;
    row[dims] = attention.maximum[i] * ln_2;
    row[dims + 1] = attention.total[i];
  }

  const AttentionArguments& a_;
  Rows& rows_;
  int* row_index_;  // of queries and out, for each row of the block
};

template <typename T, typename Kept, int dims, int row_tiles>
__global__ void __launch_bounds__(32 * warps, 2) prefill(AttentionArguments arguments) {
  Prefill<T, Kept, dims, row_tiles>(arguments).run();
}

}  // namespace

bool attention_prefill(Stream stream, const AttentionArguments& a) {
  const int64_t rows = static_cast<int64_t>(a.tokens) * (a.query_heads / a.kv_heads);
  const auto launch_instance = [&]<typename T, typename Kept>(T, Kept, auto dims) {
    constexpr int row_tiles = dims() <= 128 ? 2 : 1;
    using Work = Prefill<T, Kept, dims(), row_tiles>;
    launch(prefill<T, Kept, dims(), row_tiles>,
           {static_cast<int>(rows / Work::rows) + a.sequences, a.kv_heads}, 32 * warps, Work::shared_bytes,
           stream, a);
  };
  return with_attention_instance(a.dtype, a.head_dim, a.codes, launch_instance);
}

}  // namespace maniple::cuda
