#include <kernels/contracts.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/cpu_pages.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

namespace maniple::cpu {
namespace {

// Scratch of the calling thread. It grows to the largest call and never shrinks.
float* thread_scratch(size_t floats) {
  thread_local std::vector<float> scratch;
  if (scratch.size() < floats + 16) scratch.resize(floats + 16);
  void* memory = scratch.data();
  size_t bytes = scratch.size() * sizeof(float);
  return static_cast<float*>(std::align(64, floats * sizeof(float), memory, bytes));
}

// The query heads of a tile: all of a KV head, or an even part of them that is whole owners or of one owner.
int64_t heads_of_tile(int64_t group, int64_t owner_heads) {
  int64_t heads = std::min<int64_t>(group, attention_tile_rows);
  const auto fits = [&] {
    return group % heads == 0 &&
           (owner_heads >= group || heads % owner_heads == 0 || owner_heads % heads == 0);
  };
  while (!fits()) --heads;
  return heads;
}

// Cuts the batch into tiles: up to tile_tokens_ consecutive tokens of a sequence, for one KV head. Splits are those of the
// call's owner.
class Tiles {
 public:
  explicit Tiles(const AttentionCall& call)
      : call_(call),
        heads_(call.heads),
        batch_(call.batch),
        pages_(call.pages),
        owner_heads_(heads_.query_heads / call.context.owners),
        group_(heads_of_tile(heads_.query_heads / heads_.kv_heads, owner_heads_)),
        parts_(heads_.query_heads / heads_.kv_heads / group_),
        tile_tokens_(attention_tile_rows / group_),
        window_(call.window > 0 ? call.window : std::numeric_limits<int32_t>::max()) {
    starts_.reserve(static_cast<size_t>(batch_.sequences()) + 1);
    starts_.push_back(0);
    for (int64_t s = 0; s < batch_.sequences(); ++s) {
      const bool padding = past_length(s) < 0;
      starts_.push_back(starts_.back() + (padding ? 0 : (query_length(s) + tile_tokens_ - 1) / tile_tokens_));
      longest_context_ = std::max(longest_context_, past_length(s) + query_length(s));
      longest_query_ = std::max(longest_query_, query_length(s));
    }
  }

  int64_t count() const { return starts_.back() * heads_.kv_heads * parts_; }
  // Of a tile, at most.
  int64_t max_splits() const {
    const int64_t seen = std::min(longest_context_, window_ + tile_tokens_ - 1),
                  splits = (seen + attention_split - 2) / attention_split + 1;
    return std::min(own_splits(splits_below(longest_context_)),
                    (splits + call_.context.owners - 1) / call_.context.owners);
  }
  // Those left of every token's window are skipped.
  IndexRange splits_of(const AttentionTile& tile) const {
    return {own_splits(left_end(tile) / attention_split),
            own_splits(splits_below(tile.first_position + tile.tokens))};
  }
  int64_t split(int64_t index) const { return call_.context.owner + index * call_.context.owners; }
  int64_t classes() const { return classes_of(call_.context); }
  int64_t max_partial() const {
    return std::min(longest_query_, tile_tokens_) * group_ * (heads_.value_dim + 2);
  }

  // Counts from the end: the last tiles of a long prompt take longest, so they start first.
  AttentionTile operator[](int64_t index) const {
    const int64_t part = index % (heads_.kv_heads * parts_), head = part / parts_,
                  tile = starts_.back() - 1 - index / (heads_.kv_heads * parts_);
    const int64_t owner = part * group_ / owner_heads_, local = part * group_ % owner_heads_;
    const int64_t sequence = std::upper_bound(starts_.begin(), starts_.end(), tile) - starts_.begin() - 1;
    const int64_t first = (tile - starts_[static_cast<size_t>(sequence)]) * tile_tokens_;
    const auto element = static_cast<int64_t>(size_of(call_.queries.dtype)),
               cached = static_cast<int64_t>(size_of(call_.pages.layout.dtype));
    const int64_t token = batch_.query_starts.as<int32_t>()[sequence] + first,
                  row = (owner * batch_.tokens() + token) * owner_heads_ + local,
                  width = owner_heads_ * heads_.key_dim;
    return {.queries = call_.queries.data + row * heads_.key_dim * element,
            .out = call_.out.data +
                   row * (call_.context.owners == 1 ? heads_.value_dim * element : partial_bytes()),
            .token_stride = width,
            .out_stride = owner_heads_ * heads_.value_dim,
            .owner_stride = batch_.tokens() * width,
            .owner_heads = static_cast<int>(std::min(owner_heads_, group_)),
            .keys = pages_.key(0, head),
            .values = pages_.value(0, head),
            .next_keys = nullptr,
            .key_stride = pages_.key_block_bytes() / cached,
            .value_stride = pages_.value_block_bytes() / cached,
            .block_shift = std::countr_zero(static_cast<uint64_t>(call_.pages.layout.block_size)),
            .blocks = batch_.block_tables.as<int32_t>() +
                      batch_.seats.as<int32_t>()[sequence] * batch_.block_tables.shape[1],
            .next_split = call_.context.owners * attention_split,
            .first_position = past_length(sequence) + first,
            .window = window_,
            .tokens = static_cast<int>(std::min(tile_tokens_, query_length(sequence) - first)),
            .group = static_cast<int>(group_),
            .key_dim = static_cast<int>(heads_.key_dim),
            .value_dim = static_cast<int>(heads_.value_dim),
            .value_lanes = static_cast<int>(call_.pages.layout.value_lanes()),
            .scale = call_.scale * call_.pages.key_scale,
            .value_scale = call_.pages.value_scale,
            .sinks = call_.sinks.empty() || call_.context.owners > 1
                         ? nullptr
                         : call_.sinks.as<float>() + part * group_};
  }

  // Where the tile begins to read.
  const void* first_keys(const AttentionTile& tile) const {
    const IndexRange splits = splits_of(tile);
    if (splits.size() == 0) return nullptr;
    const int64_t position =
        std::max(split(splits.begin) * attention_split, left_end(tile) / position_group * position_group);
    const KvLayout& layout = call_.pages.layout;
    return static_cast<const std::byte*>(tile.keys) +
           tile.blocks[position >> tile.block_shift] * pages_.key_block_bytes() +
           position % layout.block_size * layout.key_dim * static_cast<int64_t>(size_of(layout.dtype));
  }

  // Divides the sum of all splits, or writes what is to be merged with that of other owners.
  void finish(const AttentionKernel& kernel, const AttentionTile& tile, float* total) const {
    if (call_.context.owners == 1) return kernel.finish(tile, total);
    const int64_t rows = tile.tokens * group_, dim = heads_.value_dim;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t token = row / group_, head = row % group_;
      auto* const to = reinterpret_cast<float*>(
          static_cast<std::byte*>(tile.out) +
          ((head / owner_heads_ * batch_.tokens() + token) * owner_heads_ + head % owner_heads_) *
              partial_bytes());
      std::copy_n(total + row * dim, dim, to);
      to[dim] = total[rows * dim + row];
      to[dim + 1] = total[rows * (dim + 1) + row];
    }
  }

 private:
  static int64_t splits_below(int64_t length) { return (length + attention_split - 1) / attention_split; }
  // The owner's among the first ones.
  int64_t own_splits(int64_t splits) const {
    const auto& [owner, owners] = call_.context;
    return (splits - owner + owners - 1) / owners;
  }
  // Of the window of the tile's first token.
  static int64_t left_end(const AttentionTile& tile) {
    return std::max<int64_t>(tile.first_position + 1 - tile.window, 0);
  }
  int64_t partial_bytes() const { return (heads_.value_dim + 2) * static_cast<int64_t>(sizeof(float)); }
  int64_t query_length(int64_t s) const {
    const auto* starts = batch_.query_starts.as<int32_t>();
    return starts[s + 1] - starts[s];
  }
  int64_t past_length(int64_t s) const { return batch_.past_lengths.as<int32_t>()[s]; }

  const AttentionCall& call_;
  const HeadLayout& heads_;
  const AttentionBatch& batch_;
  CpuPages pages_;
  int64_t owner_heads_;
  int64_t group_;  // query heads of a tile
  int64_t parts_;  // of those of a KV head
  int64_t tile_tokens_;
  int64_t window_;
  int64_t longest_context_ = 0;
  int64_t longest_query_ = 0;
  std::vector<int64_t> starts_;  // first tile of each sequence, for one head
};

size_t kernel_scratch(int64_t key_dim) {
  return static_cast<size_t>(attention_tile_rows * (key_dim + attention_split));
}

// The sums of no position: weights 0.
void clear(const AttentionTile& tile, float* sums) {
  const int rows = tile.tokens * tile.group;
  std::fill_n(sums, rows * (tile.value_dim + 2), 0.0F);
  std::fill_n(sums + rows * tile.value_dim, rows, -std::numeric_limits<float>::infinity());
}

// Merges the classes of the tile's splits and ends it. sums: of the classes, that of its first split first.
void finish(const AttentionKernel& kernel, const Tiles& tiles, const AttentionTile& tile, float* sums) {
  const IndexRange splits = tiles.splits_of(tile);
  std::array<float*, attention_classes> classes{};  // null: no split of it is seen
  for (int64_t i = 0; i < std::min(splits.size(), tiles.classes()); ++i)
    classes[static_cast<size_t>((splits.begin + i) % tiles.classes())] = sums + i * tiles.max_partial();
  merge_classes(tiles.classes(), [&](int64_t from, int64_t into) {
    float *const part = classes[static_cast<size_t>(from)], *&sum = classes[static_cast<size_t>(into)];
    if (!sum)
      sum = part;
    else if (part)
      kernel.merge(tile, part, sum);
  });
  if (splits.size() == 0) clear(tile, classes[0] = sums);
  tiles.finish(kernel, tile, classes[0]);
}

void attend_tile(const AttentionKernel& kernel, const Tiles& tiles, const AttentionTile& tile) {
  const size_t kernel_floats = kernel_scratch(tile.key_dim);
  const int64_t floats = tiles.max_partial(), classes = tiles.classes();
  float* scratch = thread_scratch(kernel_floats + static_cast<size_t>((classes + 1) * floats));
  float* const sums = scratch + kernel_floats;
  float* const partial = sums + classes * floats;
  const IndexRange splits = tiles.splits_of(tile);
  for (int64_t i = 0; i < splits.size(); ++i) {
    float* const sum = sums + i % classes * floats;
    kernel.split(tile, tiles.split(splits.begin + i), scratch, i < classes ? sum : partial);
    if (i >= classes) kernel.merge(tile, partial, sum);
  }
  finish(kernel, tiles, tile, sums);
}

// One thread computes all splits of a tile, and where there are many tiles all heads of its tokens: it knows what to prefetch.
void attend_by_tile(ThreadPool& pool, const AttentionKernel& kernel, const Tiles& tiles, int64_t kv_heads) {
  const int64_t run = tiles.count() < 4 * pool.size() * kv_heads ? 1 : kv_heads;
  pool.parallel_tasks(tiles.count() / run, [&](int64_t task) {
    AttentionTile tile = tiles[task * run];
    for (int64_t i = 1; i < run; ++i) {
      const AttentionTile next = tiles[task * run + i];
      tile.next_keys = tiles.first_keys(next);
      attend_tile(kernel, tiles, std::exchange(tile, next));
    }
    attend_tile(kernel, tiles, tile);
  });
}

// For too few tiles to keep the threads busy: the threads share the splits, some consecutive ones each, since a split fetches the next,
// and merge them afterwards, in the same order.
void attend_by_split(ThreadPool& pool, const AttentionKernel& kernel, const Tiles& tiles, int64_t key_dim) {
  thread_local std::vector<float> partials;
  const int64_t splits = tiles.max_splits(), floats = tiles.max_partial(), classes = tiles.classes();
  partials.resize(std::max(partials.size(), static_cast<size_t>(tiles.count() * splits * floats)));
  float* const first = partials.data();
  pool.parallel_ranges(tiles.count() * splits, 1, [&](IndexRange part) {
    for (int64_t index = part.begin; index < part.end; ++index) {
      AttentionTile tile = tiles[index / splits];
      const IndexRange seen = tiles.splits_of(tile);
      if (index + 1 == part.end) tile.next_split = tile.first_position + tile.tokens;  // another thread's
      if (index % splits < seen.size())
        kernel.split(tile, tiles.split(seen.begin + index % splits), thread_scratch(kernel_scratch(key_dim)),
                     first + index * floats);
    }
  });
  pool.parallel_tasks(tiles.count(), [&](int64_t index) {
    const AttentionTile tile = tiles[index];
    float* const sums = first + index * splits * floats;
    for (int64_t i = classes; i < tiles.splits_of(tile).size(); ++i)
      kernel.merge(tile, sums + i * floats, sums + i % classes * floats);
    finish(kernel, tiles, tile, sums);
  });
}

}  // namespace

void CpuOps::attend(const AttentionCall& call) {
  contract::attention(call);
  const HeadLayout& heads = call.heads;
  require(heads.key_dim % 16 == 0 && heads.value_dim % 16 == 0 && heads.value_dim <= heads.key_dim &&
              heads.query_heads % heads.kv_heads == 0,
          "attention needs a head size that divides by 16 and whole groups");
  const int64_t block_size = call.pages.layout.block_size;
  require(std::has_single_bit(static_cast<uint64_t>(block_size)) && block_size >= 16,
          "attention: the block size is no power of two from 16 on");
  const Tiles tiles(call);
  AttentionKernel kernel = path_.of(call.queries.dtype).attention;
  if (call.pages.layout.dtype == DType::fp8) kernel.split = kernel.split_e4m3;
  if (call.pages.layout.shared) kernel.split = kernel.split_latent;
  if (pool_->size() > 1 && tiles.count() < 4 * pool_->size() && tiles.max_splits() > 1)
    attend_by_split(*pool_, kernel, tiles, heads.key_dim);
  else
    attend_by_tile(*pool_, kernel, tiles, heads.kv_heads);
}

// A row of the output is a tile of one token and one head.
void CpuOps::merge_partials(ConstTensorView partials, ConstTensorView sinks, TensorView out) {
  contract::merge_partials(partials, sinks, out);
  const int64_t owners = partials.shape[0], tokens = partials.shape[1], heads = partials.shape[2],
                width = partials.shape[3], dim = width - 2;
  require(dim % 16 == 0, "merge_partials: lanes");
  const AttentionKernel& kernel = path_.of(out.dtype).attention;
  pool_->parallel_ranges(tokens * heads, 16, [&](IndexRange rows) {
    float* const sums = thread_scratch(static_cast<size_t>(owners * width));
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      AttentionTile tile{};
      tile.out = out.data + row * dim * static_cast<int64_t>(size_of(out.dtype));
      tile.tokens = tile.group = 1;
      tile.value_dim = static_cast<int>(dim);
      tile.sinks = sinks.empty() ? nullptr : sinks.as<float>() + row % heads;
      for (int64_t owner = 0; owner < owners; ++owner)
        std::copy_n(partials.as<float>() + (owner * tokens * heads + row) * width, width,
                    sums + owner * width);
      merge_classes(owners, [&](int64_t from, int64_t into) {
        kernel.merge(tile, sums + from * width, sums + into * width);
      });
      kernel.finish(tile, sums);
    }
  });
}

}  // namespace maniple::cpu
