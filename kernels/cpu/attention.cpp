#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/paged_rows.hpp>

#include <algorithm>
#include <bit>
#include <memory>
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

// Cuts the batch into tiles: up to tile_tokens_ consecutive tokens of a sequence, for one KV head.
class Tiles {
 public:
  explicit Tiles(const AttentionCall& call)
      : call_(call),
        heads_(call.heads),
        batch_(call.batch),
        pages_(call.pages),
        group_(heads_.query_heads / heads_.kv_heads),
        tile_tokens_(attention_tile_rows / group_) {
    starts_.reserve(static_cast<size_t>(batch_.sequences()) + 1);
    starts_.push_back(0);
    for (int64_t s = 0; s < batch_.sequences(); ++s) {
      const bool padding = past_length(s) < 0;
      starts_.push_back(starts_.back() + (padding ? 0 : (query_length(s) + tile_tokens_ - 1) / tile_tokens_));
      longest_context_ = std::max(longest_context_, past_length(s) + query_length(s));
      longest_query_ = std::max(longest_query_, query_length(s));
    }
  }

  int64_t count() const { return starts_.back() * heads_.kv_heads; }
  int64_t max_splits() const { return (longest_context_ + attention_split - 1) / attention_split; }
  int64_t max_partial() const {
    return std::min(longest_query_, tile_tokens_) * group_ * (heads_.head_dim + 2);
  }

  // Counts from the end: the last tiles of a long prompt take longest, so they start first.
  AttentionTile operator[](int64_t index) const {
    const int64_t head = index % heads_.kv_heads, tile = starts_.back() - 1 - index / heads_.kv_heads;
    const int64_t sequence = std::upper_bound(starts_.begin(), starts_.end(), tile) - starts_.begin() - 1;
    const int64_t first = (tile - starts_[static_cast<size_t>(sequence)]) * tile_tokens_;
    const auto element = static_cast<int64_t>(size_of(call_.queries.dtype));
    const int64_t row = (batch_.query_starts.as<int32_t>()[sequence] + first) * heads_.query_width() +
                        head * group_ * heads_.head_dim;
    const int64_t page = pages_.element(0, head);
    return {call_.queries.data + row * element,
            call_.out.data + row * element,
            heads_.query_width(),
            pages_.keys.data + page * element,
            pages_.values.data + page * element,
            pages_.element(pages_.layout.block_size, 0),
            std::countr_zero(static_cast<uint64_t>(pages_.layout.block_size)),
            batch_.block_tables.as<int32_t>() +
                batch_.seats.as<int32_t>()[sequence] * batch_.block_tables.shape[1],
            past_length(sequence) + first,
            static_cast<int>(std::min(tile_tokens_, query_length(sequence) - first)),
            static_cast<int>(group_),
            static_cast<int>(heads_.head_dim),
            call_.scale};
  }

 private:
  int64_t query_length(int64_t s) const {
    const auto* starts = batch_.query_starts.as<int32_t>();
    return starts[s + 1] - starts[s];
  }
  int64_t past_length(int64_t s) const { return batch_.past_lengths.as<int32_t>()[s]; }

  const AttentionCall& call_;
  const HeadLayout& heads_;
  const AttentionBatch& batch_;
  PagedRows pages_;
  int64_t group_;
  int64_t tile_tokens_;
  int64_t longest_context_ = 0;
  int64_t longest_query_ = 0;
  std::vector<int64_t> starts_;  // first tile of each sequence, for one head
};

int64_t splits_of(const AttentionTile& tile) {
  return (tile.first_position + tile.tokens + attention_split - 1) / attention_split;
}

size_t kernel_scratch(int64_t head_dim) {
  return static_cast<size_t>((attention_key_group + attention_tile_rows) * head_dim +
                             attention_tile_rows * attention_split);
}

// Merges the sums of the classes and writes the tile's output.
void finish(const AttentionKernel& kernel, const AttentionTile& tile, float* classes, int64_t floats) {
  merge_classes(std::min(splits_of(tile), attention_classes), [&](int64_t from, int64_t into) {
    kernel.merge(tile, classes + from * floats, classes + into * floats);
  });
  kernel.finish(tile, classes);
}

// One thread computes all splits of a tile.
void attend_by_tile(ThreadPool& pool, const AttentionKernel& kernel, const Tiles& tiles, int64_t head_dim) {
  pool.parallel_tasks(tiles.count(), [&](int64_t index) {
    const AttentionTile tile = tiles[index];
    const size_t kernel_floats = kernel_scratch(head_dim);
    const int64_t floats = tiles.max_partial(), splits = splits_of(tile);
    float* scratch = thread_scratch(kernel_floats + static_cast<size_t>((attention_classes + 1) * floats));
    float* const classes = scratch + kernel_floats;
    float* const partial = classes + attention_classes * floats;
    for (int64_t split = 0; split < splits; ++split) {
      float* const sum = classes + split % attention_classes * floats;
      kernel.split(tile, split, scratch, split < attention_classes ? sum : partial);
      if (split >= attention_classes) kernel.merge(tile, partial, sum);
    }
    finish(kernel, tile, classes, floats);
  });
}

// For too few tiles to keep the threads busy: the threads share
// the splits and merge them afterwards, in the same order.
void attend_by_split(ThreadPool& pool, const AttentionKernel& kernel, const Tiles& tiles, int64_t head_dim) {
  thread_local std::vector<float> partials;
  const int64_t splits = tiles.max_splits(), floats = tiles.max_partial();
  partials.resize(std::max(partials.size(), static_cast<size_t>(tiles.count() * splits * floats)));
  float* const first = partials.data();
  pool.parallel_tasks(tiles.count() * splits, [&](int64_t index) {
    const AttentionTile tile = tiles[index / splits];
    if (index % splits < splits_of(tile))
      kernel.split(tile, index % splits, thread_scratch(kernel_scratch(head_dim)), first + index * floats);
  });
  pool.parallel_tasks(tiles.count(), [&](int64_t index) {
    const AttentionTile tile = tiles[index];
    float* const classes = first + index * splits * floats;
    for (int64_t split = attention_classes; split < splits_of(tile); ++split)
      kernel.merge(tile, classes + split * floats, classes + split % attention_classes * floats);
    finish(kernel, tile, classes, floats);
  });
}

}  // namespace

void CpuOps::attend(const AttentionCall& call) {
  const HeadLayout& heads = call.heads;
  require(heads.head_dim % 16 == 0 && heads.query_heads % heads.kv_heads == 0,
          "attention needs a head size that divides by 16 and whole groups");
  require(heads.query_heads / heads.kv_heads <= attention_tile_rows, "too many query heads share a KV head");
  require(call.consistent(), "attention: queries, output and pages differ");
  const int64_t block_size = call.pages.layout.block_size;
  require(std::has_single_bit(static_cast<uint64_t>(block_size)) && block_size >= 16,
          "attention: the block size is no power of two from 16 on");
  const Tiles tiles(call);
  const AttentionKernel& kernel = path_.of(call.queries.dtype).attention;
  if (pool_->size() > 1 && tiles.count() < 4 * pool_->size() && tiles.max_splits() > 1)
    attend_by_split(*pool_, kernel, tiles, heads.head_dim);
  else
    attend_by_tile(*pool_, kernel, tiles, heads.head_dim);
}

}  // namespace maniple::cpu
