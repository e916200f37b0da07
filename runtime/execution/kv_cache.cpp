#include <runtime/execution/kv_cache.hpp>

namespace maniple {

KvCache::KvCache(Device& device, const KvGeometry& geometry, int64_t num_blocks) {
  const Shape shape{num_blocks, static_cast<int64_t>(geometry.layer.block_bytes())};
  for (int64_t layer = 0; layer < geometry.layers; ++layer)
    pages_.push_back({memory_.emplace_back(device, DType::uint8, shape).view(), geometry.layer});
}

}  // namespace maniple
