// Made-up steps for tests of attention and of what writes its cache.
#pragma once

#include <kernels/subjects.hpp>
#include <support/kv_pages.hpp>

#include <limits>
#include <numeric>

namespace maniple::testing {

inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();
// Of results of attention: twice the bound for bf16 on tensor cores.
inline constexpr double off_bound = 2 * (2 * 0x1p-8 + 1e-5);

// A sequence's keys, values and queries are functions of (sequence, position)
// alone, for any blocks and chunks. past -1 with one query is padding.
struct Part {
  int sequence;
  int past;
  int query;
};

struct Scene {
  HeadLayout heads;
  int64_t block_size;
  DType dtype;
  float query_scale = 3;
  bool reversed_blocks = false;
  int window = 0;  // as in AttentionCall
  bool sinks = false;

  // Rows that lie once.
  bool latent() const { return heads.value_dim != heads.key_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(heads.key_dim)); }
};

inline Scene latent_scene(int64_t heads, int64_t compressed, int64_t rotary, int64_t block_size,
                          DType dtype) {
  return {{heads, 1, compressed + rotary, compressed}, block_size, dtype};
}

// Groups of three make an odd number of heads.
inline Scene scene_of(int64_t dim, int64_t group, int64_t block_size, DType dtype) {
  const int64_t kv_heads = group == 3 ? 1 : 2;
  return {{kv_heads * group, kv_heads, dim}, block_size, dtype};
}

enum Kind { query = 1, key = 2, value = 3, sink = 4 };

// Rounded to the scene's type.
inline float element(const Scene& scene, Kind kind, int sequence, int64_t position, int64_t index) {
  const auto seed = static_cast<uint64_t>(kind * 1000 + sequence),
             place = static_cast<uint64_t>(position * 10000 + index);
  const float raw = uniform(seed, place) * (kind == query ? scene.query_scale : 1.0f);
  return rounded(scene.dtype, raw);
}

// Some are larger than every score.
inline float sink_of(const Scene& scene, int64_t head) { return 6 * element(scene, sink, 0, 0, head); }
// The first position that a token sees.
inline int first_seen(const Scene& scene, int position) {
  return scene.window > 0 ? std::max(position + 1 - scene.window, 0) : 0;
}

// The tensors of a step. Every slot that no token of the scene wrote, or that lies left of every window, holds NaN.
// Table entries past the context and left of every window are invalid, and so is the table of seat 0,
// which belongs to padding. Sequences take the seats from the last one down.
class Step {
 public:
  Step(Ops& ops, const Scene& scene, const std::vector<Part>& parts)
      : scene_(scene), parts_(parts), layout_{scene.heads.kv_heads, scene.heads.key_dim,   scene.block_size,
                                              scene.dtype,          scene.heads.value_dim, scene.latent()} {
    const HeadLayout& heads = scene.heads;
    Device& device = ops.device();
    int64_t blocks = 2;  // two that no sequence uses
    size_t width = 1;
    for (const Part& part : parts) {
      tables_.push_back(take_blocks(part.past + part.query, blocks));
      width = std::max(width, tables_.back().size() + 3);
    }
    if (scene.reversed_blocks)
      for (auto& table : tables_)
        for (int32_t& block : table) block = static_cast<int32_t>(blocks - 1 - block);
    cache_ = Tensor(device, DType::uint8, {blocks, static_cast<int64_t>(layout_.block_bytes())});
    keys_ = Tensor(device, scene.dtype, {pages().slots(), heads.kv_heads, heads.key_dim});
    values_ = Tensor(device, scene.dtype, keys_.shape());
    fill(keys_, nan);
    fill(values_, nan);
    write_kv(ops, pages(), keys_, values_);
    fill_batch(device, width);
    queries_ = Tensor(device, scene.dtype, {tokens(), heads.query_width()});
    for_tokens([&](size_t p, int64_t token, int position) {
      for (int64_t i = 0; i < heads.query_width(); ++i)
        set(queries_, token * heads.query_width() + i,
            element(scene, query, parts_[p].sequence, position, i));
    });
  }

  void write_cache(Ops& ops) {
    for (size_t p = 0; p < parts_.size(); ++p)
      for (int position = first_seen(scene_, parts_[p].past); position < parts_[p].past + parts_[p].query;
           ++position)
        for (int64_t i = 0; i < scene_.heads.kv_width(); ++i) {
          set(keys_, cache_index(p, position, i), element(scene_, key, parts_[p].sequence, position, i));
          set(values_, cache_index(p, position, i), element(scene_, value, parts_[p].sequence, position, i));
        }
    write_kv(ops, pages(), keys_, values_);
  }

  // f(part, token, position)
  template <typename F>
  void for_tokens(F f) const {
    int64_t token = 0;
    for (size_t p = 0; p < parts_.size(); ++p)
      for (int i = 0; i < parts_[p].query; ++i) f(p, token++, parts_[p].past + i);
  }
  int64_t tokens() const {
    return std::accumulate(parts_.begin(), parts_.end(), int64_t{0},
                           [](int64_t sum, const Part& part) { return sum + part.query; });
  }
  int32_t slot(size_t part, int64_t position) const {
    const auto block = static_cast<size_t>(position / scene_.block_size);
    return static_cast<int32_t>(tables_[part][block] * scene_.block_size + position % scene_.block_size);
  }
  // Index of element i of the KV heads at a position, in the arrays of read_kv and write_kv.
  int64_t cache_index(size_t part, int64_t position, int64_t i) const {
    return slot(part, position) * scene_.heads.kv_width() + i;
  }
  AttentionBatch batch() const { return {starts_, past_, seats_, table_, positions_, slots_}; }
  // The same for one owner of a shared context: the entries of other owners are -1.
  AttentionBatch batch_of(Device& device, const ContextShare& context) {
    const Shape& shape = table_.shape;
    std::vector<int32_t> table(table_.as<int32_t>(), table_.as<int32_t>() + shape.elements());
    for (size_t i = 0; i < table.size(); ++i)
      if (static_cast<int64_t>(i) % shape[1] % context.owners != context.owner) table[i] = -1;
    own_tables_.push_back(int_tensor(device, table));
    AttentionBatch mine = batch();
    mine.block_tables = own_tables_.back().view().reshaped(shape);
    return mine;
  }
  Tensor sinks(Device& device) const {
    Tensor sinks(device, DType::fp32, {scene_.heads.query_heads});
    for (int64_t head = 0; head < scene_.heads.query_heads; ++head) set(sinks, head, sink_of(scene_, head));
    return sinks;
  }
  KvPages pages() { return {cache_, layout_}; }
  ConstTensorView queries() const { return queries_; }

  void prepare(Ops& ops) {
    ops.prepare_attention({queries_, scene_.heads, batch(), pages(), {}, scene_.scale()});
  }
  Tensor attend(Ops& ops) {
    write_cache(ops);
    Tensor out(ops.device(), scene_.dtype, {tokens(), scene_.heads.out_width()});
    const PoisonedRows rows(ops.device(), queries_);
    const Tensor sinks = scene_.sinks ? this->sinks(ops.device()) : Tensor{};
    ops.attention({rows.view(), scene_.heads, batch(), pages(), out, scene_.scale(), scene_.window, sinks});
    return out;
  }

 private:
  std::vector<int32_t> take_blocks(int length, int64_t& blocks) const {
    std::vector<int32_t> table(static_cast<size_t>((length + scene_.block_size - 1) / scene_.block_size));
    for (int32_t& block : table) block = static_cast<int32_t>(blocks++);
    std::reverse(table.begin(), table.end());
    return table;
  }

  void fill_batch(Device& device, size_t width) {
    std::vector<int32_t> starts{0}, past, seats, positions, slots,
        table((parts_.size() + 1) * width, 0x3fffffff);
    for (size_t p = 0; p < parts_.size(); ++p) {
      starts.push_back(starts.back() + parts_[p].query);
      past.push_back(parts_[p].past);
      seats.push_back(parts_[p].past < 0 ? 0 : static_cast<int32_t>(parts_.size() - p));
      const std::ptrdiff_t hidden = first_seen(scene_, parts_[p].past) / scene_.block_size;
      std::copy(tables_[p].begin() + std::min(hidden, std::ssize(tables_[p])), tables_[p].end(),
                table.begin() + static_cast<std::ptrdiff_t>((parts_.size() - p) * width) + hidden);
    }
    for_tokens([&](size_t p, int64_t, int position) {
      positions.push_back(std::max(position, 0));
      slots.push_back(position < 0 ? -1 : slot(p, position));
    });
    seats_ = int_tensor(device, seats);
    starts_ = int_tensor(device, starts);
    past_ = int_tensor(device, past);
    positions_ = int_tensor(device, positions);
    slots_ = int_tensor(device, slots);
    table_storage_ = int_tensor(device, table);
    table_ = table_storage_.view().reshaped(
        {static_cast<int64_t>(parts_.size() + 1), static_cast<int64_t>(width)});
  }

  Scene scene_;
  std::vector<Part> parts_;
  std::vector<std::vector<int32_t>> tables_;
  KvLayout layout_;
  Tensor cache_, keys_, values_, queries_, starts_, past_, seats_, positions_, slots_, table_storage_;
  ConstTensorView table_;
  std::vector<Tensor> own_tables_;
};

}  // namespace maniple::testing
