// The memory of the paged keys and values of this rank's heads: num_blocks blocks per layer, as bytes.
#pragma once

#include <kernels/attention_batch.hpp>
#include <kernels/tensor/tensor.hpp>
#include <layers/kv_scales.hpp>

#include <span>
#include <vector>

namespace maniple {

struct KvGeometry {
  int64_t layers = 0;
  KvLayout layer;

  // Bytes of one block in all layers.
  size_t block_bytes() const { return static_cast<size_t>(layers) * layer.block_bytes(); }
};

class KvCache {
 public:
  // scales: by layer; empty: 1.
  KvCache(Device& device, const KvGeometry& geometry, int64_t num_blocks,
          std::span<const KvScales> scales = {}) {
    const Shape shape{num_blocks, static_cast<int64_t>(geometry.layer.block_bytes())};
    for (int64_t layer = 0; layer < geometry.layers; ++layer) {
      const KvScales scale = scales.empty() ? KvScales{} : scales[static_cast<size_t>(layer)];
      pages_.push_back(
          {memory_.emplace_back(device, DType::uint8, shape).view(), geometry.layer, scale.key, scale.value});
    }
  }
  std::span<const KvPages> pages() const { return pages_; }  // by layer
  void copy_block(Device& device, int32_t from, int32_t to) {
    for (const KvPages& layer : pages_) {
      const size_t keys = layer.layout.key_block_bytes(), values = layer.layout.block_bytes() - keys;
      std::byte* const all_values = layer.bytes.data + static_cast<size_t>(layer.bytes.shape[0]) * keys;
      copy_row(device, layer.bytes.data, keys, from, to);
      if (values > 0) copy_row(device, all_values, values, from, to);
    }
  }

 private:
  static void copy_row(Device& device, std::byte* rows, size_t bytes, int32_t from, int32_t to) {
    device.copy(rows + static_cast<size_t>(to) * bytes, rows + static_cast<size_t>(from) * bytes, bytes);
  }

  std::vector<Tensor> memory_;
  std::vector<KvPages> pages_;
};

}  // namespace maniple
