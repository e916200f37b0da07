// The memory of the paged keys and values of this rank's heads, as bytes: of each layer the blocks of its pool.
#pragma once

#include <kernels/attention_batch.hpp>
#include <kernels/tensor/tensor.hpp>
#include <layers/kv_scales.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace maniple {

struct KvGeometry {
  int64_t layers = 0;
  KvLayout layer;
  std::vector<bool> windowed = {};  // by layer: whether it has blocks of the pool of windows; empty: none
  int64_t window_pages = 1;         // of such a block, which has the tokens of any other

  bool has_window(int64_t index) const { return !windowed.empty() && windowed[static_cast<size_t>(index)]; }
  int64_t window_layers() const { return std::ranges::count(windowed, true); }
  // Bytes of one block in all its layers.
  size_t block_bytes() const { return static_cast<size_t>(layers - window_layers()) * layer.block_bytes(); }
  size_t window_block_bytes() const {
    return static_cast<size_t>(window_layers() * window_pages) * layer.block_bytes();
  }
};

class KvCache {
 public:
  // scales: by layer; empty: 1.
  KvCache(Device& device, const KvGeometry& geometry, int64_t num_blocks,
          std::span<const KvScales> scales = {}, int64_t window_blocks = 0)
      : geometry_(geometry) {
    for (int64_t layer = 0; layer < geometry.layers; ++layer) {
      const int64_t pages = geometry.has_window(layer) ? window_blocks * geometry.window_pages : num_blocks;
      const Shape shape{pages, static_cast<int64_t>(geometry.layer.block_bytes())};
      const KvScales scale = scales.empty() ? KvScales{} : scales[static_cast<size_t>(layer)];
      pages_.push_back(
          {memory_.emplace_back(device, DType::uint8, shape).view(), geometry.layer, scale.key, scale.value});
    }
  }
  std::span<const KvPages> pages() const { return pages_; }  // by layer
  // In the layers of its pool.
  void copy_block(Device& device, int32_t from, int32_t to, bool of_windows) {
    for (int64_t index = 0; index < geometry_.layers; ++index) {
      if (geometry_.has_window(index) != of_windows) continue;
      const KvPages& layer = pages_[static_cast<size_t>(index)];
      const size_t pages = of_windows ? static_cast<size_t>(geometry_.window_pages) : 1,
                   keys = layer.layout.key_block_bytes(), values = layer.layout.block_bytes() - keys;
      std::byte* const all_values = layer.bytes.data + static_cast<size_t>(layer.bytes.shape[0]) * keys;
      copy_row(device, layer.bytes.data, pages * keys, from, to);
      if (values > 0) copy_row(device, all_values, pages * values, from, to);
    }
  }

 private:
  static void copy_row(Device& device, std::byte* rows, size_t bytes, int32_t from, int32_t to) {
    device.copy(rows + static_cast<size_t>(to) * bytes, rows + static_cast<size_t>(from) * bytes, bytes);
  }

  KvGeometry geometry_;
  std::vector<Tensor> memory_;
  std::vector<KvPages> pages_;
};

}  // namespace maniple
