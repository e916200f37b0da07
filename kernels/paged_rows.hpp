// The layout of pages in the reference and CUDA backends: the first half of a layer's bytes holds the keys, the second the
// values, each [block][kv_head][block_size][head_dim]. Only Ops use it.
#pragma once

#include <kernels/attention_batch.hpp>

namespace maniple {

struct PagedRows {
  explicit PagedRows(const KvPages& pages) : layout(pages.layout) {
    const size_t half = pages.bytes.bytes() / 2;
    const Shape elements{static_cast<int64_t>(half / size_of(layout.dtype))};
    keys = {pages.bytes.data, layout.dtype, elements};
    values = {pages.bytes.data + half, layout.dtype, elements};
  }

  // Where a head begins, in keys and in values.
  int64_t element(int64_t slot, int64_t kv_head) const {
    const int64_t block = slot / layout.block_size, offset = slot % layout.block_size;
    return ((block * layout.kv_heads + kv_head) * layout.block_size + offset) * layout.head_dim;
  }

  KvLayout layout;
  TensorView keys, values;
};

}  // namespace maniple
