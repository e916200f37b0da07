#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/cpu_pages.hpp>

#include <cstring>

namespace maniple::cpu {
namespace {

// Calls copy(element of a row, the same in pages, bytes) for all keys and values.
template <typename Byte, typename F>
void for_elements(const KvPages& pages, Byte* keys, Byte* values, F copy) {
  const CpuPages cache(pages);
  const size_t bytes = size_of(pages.layout.dtype);
  for (int64_t slot = 0; slot < pages.slots(); ++slot)
    for (int64_t head = 0; head < pages.layout.kv_heads; ++head)
      for (int64_t d = 0; d < pages.layout.head_dim; ++d, keys += bytes, values += bytes) {
        copy(keys, cache.key(slot, head, d), bytes);
        copy(values, cache.value(slot, head, d), bytes);
      }
}

bool hold_every_slot(const KvPages& pages, ConstTensorView keys, ConstTensorView values) {
  return keys.bytes() + values.bytes() == pages.bytes.bytes() && keys.shape == values.shape;
}

}  // namespace

void CpuOps::read_kv(const KvPages& pages, TensorView keys, TensorView values) {
  require(hold_every_slot(pages, keys, values), "keys and values of every slot");
  for_elements(pages, keys.data, values.data, [](std::byte* to, const std::byte* in_pages, size_t bytes) {
    std::memcpy(to, in_pages, bytes);
  });
}

void CpuOps::write_kv(const KvPages& pages, ConstTensorView keys, ConstTensorView values) {
  require(hold_every_slot(pages, keys, values), "keys and values of every slot");
  for_elements(pages, keys.data, values.data, [](const std::byte* from, std::byte* in_pages, size_t bytes) {
    std::memcpy(in_pages, from, bytes);
  });
}

}  // namespace maniple::cpu
