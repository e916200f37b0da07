// Keys and values of all slots, [slots, kv_heads, key_dim or value_dim], to and from the pages of a backend that works in host memory or
// in a mirror of it.
#pragma once

#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/cpu_pages.hpp>
#include <kernels/paged_rows.hpp>

#include <cstring>

namespace maniple::testing {

// Calls copy(element of a tensor, the same in pages, bytes) for all keys and values.
template <typename Byte, typename F>
void for_kv_elements(const Ops& ops, const KvPages& pages, Byte* keys, Byte* values, F copy) {
  const bool of_cpu = dynamic_cast<const cpu::CpuOps*>(&ops) != nullptr;
  const cpu::CpuPages cache(pages);
  const PagedRows rows(pages);
  const size_t bytes = size_of(pages.layout.dtype);
  const auto at = [&](TensorView rows_of, int64_t element) {
    return rows_of.data + static_cast<size_t>(element) * bytes;
  };
  for (int64_t slot = 0; slot < pages.slots(); ++slot)
    for (int64_t head = 0; head < pages.layout.kv_heads; ++head) {
      for (int64_t d = 0; d < pages.layout.key_dim; ++d, keys += bytes)
        copy(keys, of_cpu ? cache.key(slot, head, d) : at(rows.keys, rows.key(slot, head) + d), bytes);
      for (int64_t d = 0; !pages.layout.shared && d < pages.layout.value_dim; ++d, values += bytes)
        copy(values, of_cpu ? cache.value(slot, head, d) : at(rows.values, rows.value(slot, head) + d),
             bytes);
    }
}

inline void require_every_slot(const KvPages& pages, ConstTensorView keys, ConstTensorView values) {
  require(keys.bytes() + (pages.layout.shared ? 0 : values.bytes()) == pages.bytes.bytes(),
          "keys and values of every slot");
}

inline void read_kv(const Ops& ops, const KvPages& pages, TensorView keys, TensorView values) {
  require_every_slot(pages, keys, values);
  for_kv_elements(ops, pages, keys.data, values.data,
                  [](std::byte* to, const std::byte* in_pages, size_t n) { std::memcpy(to, in_pages, n); });
}

inline void write_kv(const Ops& ops, const KvPages& pages, ConstTensorView keys, ConstTensorView values) {
  require_every_slot(pages, keys, values);
  for_kv_elements(
      ops, pages, keys.data, values.data,
      [](const std::byte* from, std::byte* in_pages, size_t n) { std::memcpy(in_pages, from, n); });
}

}  // namespace maniple::testing
