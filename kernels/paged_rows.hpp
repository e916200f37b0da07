// The layout of pages in the reference and CUDA backends: a layer's bytes hold first the keys, then the values, each
// [block][kv_head][block_size][key_dim or value_dim]. Of shared rows there are keys alone. Only Ops use it.
#pragma once

#include <kernels/attention_batch.hpp>

namespace maniple {

struct PagedRows {
  explicit PagedRows(const KvPages& pages) : layout(pages.layout) {
    const int64_t rows = pages.slots() * layout.kv_heads;
    keys = {pages.bytes.data, layout.dtype, {rows * layout.key_dim}};
    values = {
        pages.bytes.data + (layout.shared ? 0 : keys.bytes()), layout.dtype, {rows * layout.value_lanes()}};
  }

  // The element with which a head begins.
  int64_t key(int64_t slot, int64_t kv_head) const { return row(slot, kv_head) * layout.key_dim; }
  int64_t value(int64_t slot, int64_t kv_head) const { return row(slot, kv_head) * layout.value_lanes(); }

  KvLayout layout;
  TensorView keys, values;

 private:
  int64_t row(int64_t slot, int64_t kv_head) const {
    const int64_t block = slot / layout.block_size, offset = slot % layout.block_size;
    return (block * layout.kv_heads + kv_head) * layout.block_size + offset;
  }
};

}  // namespace maniple
