// The paged keys and values of this rank's heads, one pair of tensors a layer:
// [block][kv_head][block_size][head_dim].
#pragma once

#include <kernels/attention_batch.hpp>
#include <kernels/ops.hpp>

#include <span>
#include <vector>

namespace maniple {

struct KvGeometry {
  int64_t layers = 0;
  int64_t kv_heads = 0;  // on this rank
  int64_t head_dim = 0;
  int64_t block_size = 0;
  DType dtype = DType::bf16;

  // Bytes of one block in all layers.
  size_t block_bytes() const {
    return 2 * static_cast<size_t>(layers * kv_heads * head_dim * block_size) * size_of(dtype);
  }
};

class KvCache {
 public:
  KvCache(Device& device, const KvGeometry& geometry, int64_t num_blocks);
  std::span<const KvPages> pages() const { return pages_; }  // one a layer

 private:
  std::vector<Tensor> memory_;
  std::vector<KvPages> pages_;
};

}  // namespace maniple
