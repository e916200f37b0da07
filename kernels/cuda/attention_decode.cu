// Attention of the sequences with one query (decode) over the paged cache, on tensor cores: bf16 and fp16.
//
// A part of the work is one split of a sequence's context (attention_split absolute positions) for one KV
// head and up to 16 of its query heads. The blocks find their parts from the lengths on the device, so a
// captured launch serves any lengths, and a block that is free draws the next part. Each split is summed in
// one fixed order, and so are the splits of a sequence: a row's bits depend on nothing but its own query and
// context.
#include <kernels/cuda/attention_places.hpp>
#include <kernels/cuda/attention_tiles.hpp>
#include <kernels/cuda/reductions.hpp>

#include <algorithm>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int most_classes = 8;  // attention_classes
constexpr int warps = 4;
constexpr int tile_keys = 16;  // a page holds whole tiles
constexpr int tile_rows = 16;
constexpr int max_tiles = split_size / tile_keys / warps;  // of a warp in a split

// Each warp of a block has a ring of tiles, keys and values in turn. Behind a ring of codes lies one tile that they are widened to.
// The sums of a split lie behind the first tiles of the next one, which travel meanwhile.
template <typename Kept, int dims>
struct Ring {
  static constexpr bool codes = sizeof(Kept) == 1;
  static constexpr int tile = tile_keys * dims;  // elements
  static constexpr int tile_bytes = tile * static_cast<int>(sizeof(Kept)),
                       widened_bytes = codes ? 2 * tile : 0;
  static constexpr int depth = std::min(2 * max_tiles, ((16 << 10) - widened_bytes) / tile_bytes);
  static constexpr int sums_pitch = dims + 8;  // against bank conflicts
  static constexpr int sums_bytes = tile_rows * sums_pitch * static_cast<int>(sizeof(float));
  static constexpr int bytes = std::max(depth * tile_bytes + widened_bytes, sums_bytes);
  static constexpr int ahead =
      std::min(depth - 1, (bytes - sums_bytes) / tile_bytes);  // tiles before the sums
};

// Splits split, split + step, ... before `splits` of a sequence for one KV head and `rows` of its query heads.
struct Part {
  int sequence;
  int kv_head;
  int first_head;
  int rows;
  int context;
  int split, splits, step;  // no splits where there is no part
  int slot;                 // where the sum of these splits goes
  int first_slot;           // of the sequence
  int sequence_slots;       // consecutive
};

// A part at its first split that is left.
struct PlacedPart : Part {
  int row[tile_rows];                // of queries and out, for each row
  int tile[split_size / tile_keys];  // of keys and of values, in the cache
};

// Shared data of the warps of a block. A turn is one split.
struct Exchange {
  PlacedPart part[2];  // of this turn and of the next one, by the parity of the turn
  float maximum[warps][tile_rows];
  float total[warps][tile_rows];
  float former[2][2][tile_rows];  // maximum and total of a part's earlier splits, by the parity of the turn
  int scratch[warps];
  int arrival;
};
__device__ int context_of(const AttentionArguments& a, int sequence) {
  return a.query_starts[sequence + 1] - a.query_starts[sequence] == 1 ? a.past_lengths[sequence] + 1 : 0;
}
// At least one: an owner without a split of the context makes an empty partial of one beyond its end, and a sequence without a context
// has one without rows.
__device__ int splits_of(const AttentionArguments& a, int sequence) {
  const int own = own_splits(a, (context_of(a, sequence) + split_size - 1) / split_size);
  return own > 0 ? own : 1;
}

// ends[i] = number_of(0) + .. + number_of(i), after a barrier. Returns the last one.
template <typename NumberOf>
__device__ int running_sums(int count, int* ends, int* scratch, NumberOf number_of) {
  const int each = (count + block_threads() - 1) / block_threads(), begin = thread_index() * each;
  const int end = begin + each < count ? begin + each : count;
  int mine = 0;
  for (int i = begin; i < end; ++i) ends[i] = mine += number_of(i);
  int total;
  const int before = block_sum_before(mine, scratch, total);
  for (int i = begin; i < end; ++i) ends[i] += before;
  return total;
}

__device__ int row_tiles(const AttentionArguments& a) {
  return (a.query_heads / a.kv_heads + tile_rows - 1) / tile_rows;
}

template <typename T, typename Kept, int dims>
class Decode {
 public:
  using Tiles = Ring<Kept, dims>;
  // Of shared memory; then the ends of the slots of each sequence.
  static constexpr size_t bytes_before_ends =
      warps * Tiles::bytes + tile_rows * dims * sizeof(T) + sizeof(Exchange);

  __device__ Decode(const AttentionArguments& a, const DecodeWorkspace& workspace)
      : a_(a),
        workspace_(workspace),
        queries_(reinterpret_cast<T*>(shared_memory() + warps * Tiles::bytes)),
        exchange_(*reinterpret_cast<Exchange*>(queries_ + tile_rows * dims)),
        slot_ends_(reinterpret_cast<int*>(&exchange_ + 1)),
        ring_(reinterpret_cast<Kept*>(shared_memory() + warp_index() * Tiles::bytes)) {}

  // Block b takes part b, then those that it draws.
  __device__ void run() {
    int slots =
        running_sums(a_.sequences, slot_ends_, exchange_.scratch, [&](int s) { return splits_of(a_, s); });
    if (slots > workspace_.slot_count)
      slots = running_sums(a_.sequences, slot_ends_, exchange_.scratch, [&](int s) {
        return splits_of(a_, s) < a_.classes ? splits_of(a_, s) : a_.classes;
      });
    parts_ = slots * a_.kv_heads * row_tiles(a_);
    synchronize_block();
    if (warp_index() == 0) place(find_part(block_index().x), exchange_.part[0]);
    synchronize_block();
    fetch_tiles<0, Tiles::depth - 1>(exchange_.part[0]);
    for (int turn = 0; exchange_.part[turn % 2].splits > 0; ++turn)
      attend(turn, exchange_.part[turn % 2], exchange_.part[(turn + 1) % 2]);
  }

 private:
  static constexpr int vectors = dims / 4;  // of a row

  // Parts of one slot differ by head. A sequence has one slot per split, or one per class; its last one may be short, so those of all
  // sequences come at the end.
  __device__ Part find_part(int index) const {
    if (index >= parts_) return {};
    const int tiles = row_tiles(a_), group = a_.query_heads / a_.kv_heads;
    const int place = index / (a_.kv_heads * tiles), head = index / tiles % a_.kv_heads, tile = index % tiles;
    const int whole = slot_ends_[a_.sequences - 1] - a_.sequences;
    const int sequence = place < whole ? first_where(-1, a_.sequences - 1,
                                                     [&](int s) { return slot_ends_[s] - s - 1 > place; })
                                       : place - whole,
              slot = place < whole ? place + sequence : slot_ends_[sequence] - 1;
    const int first_slot = sequence == 0 ? 0 : slot_ends_[sequence - 1],
              slots = slot_ends_[sequence] - first_slot;
    const int context = context_of(a_, sequence), splits = splits_of(a_, sequence), split = slot - first_slot,
              left = context > 0 ? group - tile * tile_rows : 0;
    return {sequence,
            head,
            head * group + tile * tile_rows,
            left < tile_rows ? left : tile_rows,
            context,
            split,
            splits,
            slots == splits ? splits : a_.classes,
            slot,
            first_slot,
            slots};
  }

  // The index of a part that no block has yet. As many are drawn as there are parts, so the counter returns to zero.
  __device__ int drawn_part() const {
    if (parts_ <= grid_size().x) return parts_;
    int before = 0;
    if (lane_index() == 0) {
      before = atomic_add(workspace_.counters, 1);
      if (before == parts_ - 1) *workspace_.counters = 0;
    }
    return grid_size().x + shuffle(before, 0);
  }
  // By one warp, as what follows.
  __device__ Part after(Part part) const {
    part.split += part.step;
    return part.split < part.splits ? part : find_part(drawn_part());
  }
  __device__ void place(const Part& part, PlacedPart& to) const {
    const int lane = lane_index(), position = split_begin(a_, part.split) + lane * tile_keys;
    if (lane == 0) static_cast<Part&>(to) = part;
    if (lane < part.rows)
      to.row[lane] = static_cast<int>(query_row(a_, a_.query_starts[part.sequence], part.first_head + lane));
    if (lane < split_size / tile_keys && position < part.context)
      to.tile[lane] =
          (block_table(a_, part.sequence)[position / a_.block_size] * a_.kv_heads + part.kv_head) *
              (a_.block_size / tile_keys) +
          place_in_block(a_, position) / tile_keys;
  }

  __device__ void attend(int turn, const PlacedPart& part, PlacedPart& next) {
    if (warp_index() == 0) place(after(part), next);  // while tiles travel
    load_queries(part);
    synchronize_block();
    WarpAttention<T, dims, 1> attention;
    attend_tiles(part, attention);
    synchronize_warp();  // all lanes have read the last tiles
    fetch_tiles<0, Tiles::ahead>(next);
    exchange_sums(attention);
    const bool last = part.split + part.step >= part.splits, alone = part.sequence_slots == 1;
    for (int v = thread_index(); v < part.rows * vectors; v += block_threads()) {
      Partial partial = sum_of_warps(v);
      if (part.split >= part.step) partial = merged(former(part, turn, v), partial);
      if (v % vectors == 0) {
        exchange_.former[turn % 2][0][v / vectors] = partial.maximum;
        exchange_.former[turn % 2][1][v / vectors] = partial.total;
      }
      // The slot holds what the next split goes on from, also where it is the only one.
      if (alone && last)
        write(part, v, partial);
      else
        store(part, v, partial);
    }
    const bool arrives = last && !alone;
    if (arrives) memory_fence();
    synchronize_block();  // the sums and the queries have been read
    fetch_tiles<Tiles::ahead, Tiles::depth - 1>(next);
    if (!arrives) return;
    int32_t* const arrivals =
        &workspace_.counters[1 + static_cast<int64_t>(part.sequence) * a_.query_heads + part.first_head];
    if (is_last_after_fence(arrivals, part.sequence_slots, exchange_.arrival)) combine(part);
    synchronize_block();  // the part has been read
  }

  // Rows from part.rows on are zero.
  __device__ void load_queries(const PlacedPart& part) const {
    constexpr int chunks = dims / 8;
    for (int chunk = thread_index(); chunk < tile_rows * chunks; chunk += block_threads()) {
      Vector<T> vector{};
      const int row = chunk / chunks;
      if (row < part.rows)
        vector = load_vector(static_cast<const T*>(a_.queries) + int64_t{part.row[row]} * dims +
                             chunk % chunks * 8);
      store_vector(queries_ + swizzled<dims>(row, chunk % chunks), vector);
    }
  }

  // Warp w takes tiles w, w + 4, ... of the split: the keys from its first tile on, none where negative.
  __device__ int keys_of(const Part& part) const {
    const int left = part.context - split_begin(a_, part.split);
    return (left < split_size ? left : split_size) - warp_index() * tile_keys;
  }
  template <int first, int end>
  __device__ void fetch_tiles(const PlacedPart& part) const {
    const int keys = keys_of(part);
    for (int step = first; step < end; ++step) fetch_tile(part, keys, step);
  }
  __device__ void attend_tiles(const PlacedPart& part, WarpAttention<T, dims, 1>& attention) {
    constexpr int depth = Tiles::depth;
    const int all = keys_of(part);
    const auto arrived = [&](int step) -> const T* {
      wait_copies<depth - 2>();
      synchronize_warp();  // and all lanes have read the tile that the next copy overwrites
      fetch_tile(part, all, step + depth - 1);
      const Kept* const tile = ring_ + step % depth * Tiles::tile;
      if constexpr (Tiles::codes) {
        T* const widened = reinterpret_cast<T*>(ring_ + depth * Tiles::tile);
        widen_rows<tile_keys, dims>(widened, tile);
        synchronize_warp();
        return widened;
      } else {
        return tile;
      }
    };
    for (int tile = 0; tile * warps * tile_keys < all; ++tile) {
      float scores[1][tile_keys / 8][4] = {};
      attention.template score<tile_keys>(scores, queries_, arrived(2 * tile));
      mask(scores, all - tile * warps * tile_keys);
      attention.template weigh<tile_keys>(scores, a_.scale * log2_e);
      attention.template add_values<tile_keys>(scores, arrived(2 * tile + 1));
    }
    attention.finish();
  }

  // Zeros after the context: a position that no token wrote may hold NaN, which a weight of zero would keep.
  __device__ void fetch_tile(const PlacedPart& part, int keys, int step) const {
    const int left = keys - step / 2 * warps * tile_keys;
    if (left > 0)
      copy_rows<tile_keys, dims>(ring_ + step % Tiles::depth * Tiles::tile,
                                 static_cast<const Kept*>(step % 2 == 0 ? a_.keys : a_.values) +
                                     int64_t{part.tile[step / 2 * warps + warp_index()]} * Tiles::tile,
                                 left);
    commit_copies();
  }

  __device__ static void mask(float (&scores)[1][tile_keys / 8][4], int keys) {
    if (keys >= tile_keys) return;
    for (int n = 0; n < tile_keys / 8; ++n)
      for (int j = 0; j < 4; ++j)
        if (8 * n + 2 * (lane_index() % 4) + j % 2 >= keys) scores[0][n][j] = -INFINITY;
  }

  // Rescales the sums of all warps to one maximum per row and stores them by row.
  __device__ void exchange_sums(const WarpAttention<T, dims, 1>& attention) {
    const int row = lane_index() / 4, column = 2 * (lane_index() % 4);
    for (int i = 0; i < 2; ++i)
      if (column == 0) {
        exchange_.maximum[warp_index()][row + 8 * i] = attention.maximum[i];
        exchange_.total[warp_index()][row + 8 * i] = attention.total[i];
      }
    synchronize_block();
    for (int i = 0; i < 2; ++i) {
      const float shrink = fast_exp2(attention.maximum[i] - largest(row + 8 * i));
      float* const to = sums(warp_index(), row + 8 * i) + column;
      for (int n = 0; n < dims / 8; ++n)
        for (int j = 0; j < 2; ++j) to[8 * n + j] = attention.sum[0][n][2 * i + j] * shrink;
    }
    synchronize_block();
  }

  __device__ static float* sums(int warp, int row) {
    return reinterpret_cast<float*>(shared_memory() + warp * Tiles::bytes +
                                    Tiles::ahead * Tiles::tile_bytes) +
           row * Tiles::sums_pitch;
  }
  __device__ float largest(int row) const {
    float maximum = exchange_.maximum[0][row];
    for (int w = 1; w < warps; ++w) maximum = fmaxf(maximum, exchange_.maximum[w][row]);
    return maximum;
  }
  __device__ Partial sum_of_warps(int v) const {
    const int row = v / vectors;
    Partial sum{largest(row), 0, {}};
    for (int w = 0; w < warps; ++w) {
      sum.total += exchange_.total[w][row] * fast_exp2(exchange_.maximum[w][row] - sum.maximum);
      const Four four = *reinterpret_cast<const Four*>(sums(w, row) + v % vectors * 4);
      for (int i = 0; i < 4; ++i) sum.sum.values[i] += four.values[i];
    }
    return sum;
  }

  __device__ float* slot_of(int slot) const {
    return workspace_.slots + static_cast<int64_t>(slot) * decode_slot_floats(a_.query_heads, dims);
  }
  __device__ Four* slot_sum(const Part& part, int slot, int v) const {
    return reinterpret_cast<Four*>(slot_of(slot) + part.first_head * dims) + v;
  }
  __device__ float* slot_weight(const Part& part, int slot, int v) const {
    return slot_of(slot) + a_.query_heads * dims + 2 * (part.first_head + v / vectors);
  }
  __device__ void store(const Part& part, int v, const Partial& partial) const {
    *slot_sum(part, part.slot, v) = partial.sum;
    if (v % vectors > 0) return;
    slot_weight(part, part.slot, v)[0] = partial.maximum;
    slot_weight(part, part.slot, v)[1] = partial.total;
  }
  __device__ Partial load(const Part& part, int slot, int v) const {
    const float* const weight = slot_weight(part, slot, v);
    return {weight[0], weight[1], *slot_sum(part, slot, v)};
  }
  __device__ Partial former(const Part& part, int turn, int v) const {
    const auto& weight = exchange_.former[(turn - 1) % 2];
    return {weight[0][v / vectors], weight[1][v / vectors], *slot_sum(part, part.slot, v)};
  }

  __device__ void write(const PlacedPart& part, int v, Partial partial) const {
    for (float& sum : partial.sum.values) sum *= a_.value_scale;
    const int64_t row = part.row[v / vectors];
    if (a_.owners > 1) return store_partial(partial_row(a_, row), dims, v % vectors, partial);
    struct alignas(4 * sizeof(T)) {
      T values[4];
    } rounded;
    for (int i = 0; i < 4; ++i) rounded.values[i] = static_cast<T>(partial.sum.values[i] / partial.total);
    *reinterpret_cast<decltype(rounded)*>(static_cast<T*>(a_.out) + row * dims + v % vectors * 4) = rounded;
  }

  // A chain over the slots of each class, then the tree of merge_classes. Slots are loaded by fours before they are merged: loads need
  // not wait for each other.
  __device__ Partial sum_of_slots(const Part& part, int v) const {
    constexpr int together = dims <= 32 ? 2 : 4;
    const int slots = part.sequence_slots, classes = a_.classes;
    const auto loaded = [&](int slot) { return load(part, part.first_slot + (slot < slots ? slot : 0), v); };
    Partial sums[most_classes];
    for (int c = 0; c < most_classes; ++c) sums[c] = loaded(computed_here(c));
    DEVICE_ROLLED
    for (int first = classes; first < slots; first += classes) {
      const int end = first + classes < slots ? first + classes : slots;
      for (int c = 0; c < most_classes; c += together) {
        Partial next[together];
        for (int i = 0; i < together; ++i) next[i] = loaded(computed_here(first + c) + i);
        for (int i = 0; i < together; ++i) {
          const Partial both = merged(sums[c + i], next[i]);
          if (first + c + i < end) sums[c + i] = both;
        }
      }
    }
    for (int distance = most_classes / 2; distance > 0; distance /= 2)
      for (int c = 0; c < distance; ++c)
        if (c + distance < classes && c + distance < slots) sums[c] = merged(sums[c], sums[c + distance]);
    return sums[0];
  }
  __device__ void combine(const PlacedPart& part) const {
    memory_fence();
    for (int v = thread_index(); v < part.rows * vectors; v += block_threads())
      write(part, v, sum_of_slots(part, computed_here(v)));
  }

  const AttentionArguments& a_;
  const DecodeWorkspace& workspace_;
  T* queries_;
  Exchange& exchange_;
  int* slot_ends_;  // of each sequence
  Kept* ring_;
  int parts_ = 0;
};

static_assert(Decode<bf16, bf16, 256>::bytes_before_ends + sizeof(int) * max_decode_sequences <= 99 << 10);
static_assert(Decode<bf16, Float8, 256>::bytes_before_ends + sizeof(int) * max_decode_sequences <= 99 << 10);

template <typename T, typename Kept, int dims>
__global__ void __launch_bounds__(32 * warps, dims <= 32    ? 4
                                              : dims <= 128 ? 3
                                                            : 2)
    decode(PreviousKernel previous, AttentionArguments arguments, DecodeWorkspace workspace) {
  wait_for(previous);
  Decode<T, Kept, dims>(arguments, workspace).run();
}

}  // namespace

bool attention_on_tensor_cores(DType dtype, int64_t head_dim) {
  return with_attention_instance(dtype, head_dim, false, [](auto...) {});
}

bool attention_decode(Stream stream, const AttentionArguments& a, const DecodeWorkspace& workspace) {
  const auto launch_instance = [&]<typename T, typename Kept>(T, Kept, auto dims) {
    const auto kernel = decode<T, Kept, dims()>;
    const size_t bytes =
        Decode<T, Kept, dims()>::bytes_before_ends + sizeof(int) * static_cast<size_t>(a.sequences);
    launch_early(kernel, {resident_blocks(kernel, 32 * warps, bytes)}, 32 * warps, bytes, stream, a,
                 workspace);
  };
  return with_attention_instance(a.dtype, a.head_dim, a.codes, launch_instance);
}

}  // namespace maniple::cuda
