#include <runtime/execution/kv_cache.hpp>

namespace maniple {

KvCache::KvCache(Device& device, const KvGeometry& geometry, int64_t num_blocks) {
  const Shape shape{num_blocks, geometry.kv_heads, geometry.block_size, geometry.head_dim};
  for (int64_t layer = 0; layer < geometry.layers; ++layer) {
    const TensorView keys = memory_.emplace_back(device, geometry.dtype, shape).view();
    const TensorView values = memory_.emplace_back(device, geometry.dtype, shape).view();
    pages_.push_back({keys, values});
  }
}

}  // namespace maniple
