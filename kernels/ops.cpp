#include <kernels/ops.hpp>
#include <kernels/paged_rows.hpp>

#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace maniple {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ExitCode::input, "attention with " + what + " is not supported",
              "no backend computes it, and results without it would be another model's",
              "use a model that does not need it");
}

// Calls f(head in keys or values, the same in pages, bytes)
// for every head of every slot. pages are in host memory.
template <typename Byte, typename F>
void for_heads(const KvPages& pages, Byte* keys, Byte* values, F f) {
  const PagedRows rows(pages);
  const size_t element = size_of(pages.layout.dtype);
  const size_t head = static_cast<size_t>(pages.layout.head_dim) * element;
  for (int64_t slot = 0; slot < pages.slots(); ++slot)
    for (int64_t h = 0; h < pages.layout.kv_heads; ++h, keys += head, values += head) {
      const size_t at = static_cast<size_t>(rows.element(slot, h)) * element;
      f(keys, rows.keys.data + at, head);
      f(values, rows.values.data + at, head);
    }
}

void require_every_slot(const KvPages& pages, ConstTensorView keys, ConstTensorView values) {
  require(keys.bytes() + values.bytes() == pages.bytes.bytes() && keys.shape == values.shape,
          "keys and values of every slot");
}

}  // namespace

void Ops::attention(const AttentionCall& call) {
  if (call.window != 0) refuse(fmt::format("a window ({} positions)", call.window));
  if (call.soft_cap != 0) refuse(fmt::format("a soft cap on scores ({})", call.soft_cap));
  const KvPages& pages = call.pages;
  if (pages.layout.dtype != DType::fp8 && (pages.key_scale != 1 || pages.value_scale != 1))
    refuse(fmt::format("scales ({}, {}) of {} keys and values", pages.key_scale, pages.value_scale,
                       name_of(pages.layout.dtype)));
  attend(call);
}

// Partial sums stay in memory of their own until the end, because out may be a part.
void Ops::add_tree(std::span<const ConstTensorView> parts, TensorView out, TensorView copy) {
  require(!parts.empty(), "parts of a sum");
  const auto copy_to = [&](TensorView to, ConstTensorView from) {
    if (!to.empty() && to.data != from.data) device().copy(to.data, from.data, from.bytes());
  };
  if (parts.size() == 1) {
    copy_to(out, parts[0]);
    return copy_to(copy, parts[0]);
  }
  std::array<Tensor, 2> sums;
  const auto operand = [&](std::span<const ConstTensorView> half, Tensor& sum) -> ConstTensorView {
    if (half.size() == 1) return half[0];
    sum = Tensor(device(), out.dtype, out.shape);
    add_tree(half, sum.view(), {});
    return sum.view();
  };
  const size_t left = std::bit_floor(parts.size() - 1);
  add(operand(parts.first(left), sums[0]), operand(parts.subspan(left), sums[1]), out);
  copy_to(copy, out);
  if (parts.size() > 2) device().synchronize();  // before the memory of the sums goes
}

void Ops::row_abs_maxima(ConstTensorView, TensorView) {
  fail(ExitCode::internal, "this backend has no kernels for rounded activations");
}
void Ops::gather_columns(ConstTensorView, ConstTensorView, TensorView) {
  fail(ExitCode::internal, "this backend has no kernels for ordered columns");
}

void Ops::read_kv(const KvPages& pages, TensorView keys, TensorView values) {
  require_every_slot(pages, keys, values);
  std::vector<std::byte> host(pages.bytes.bytes());
  device().download(host.data(), pages.bytes.data, host.size());
  for_heads({{host.data(), DType::uint8, pages.bytes.shape}, pages.layout}, keys.data, values.data,
            [](std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); });
}

void Ops::write_kv(const KvPages& pages, ConstTensorView keys, ConstTensorView values) {
  require_every_slot(pages, keys, values);
  std::vector<std::byte> host(pages.bytes.bytes());
  for_heads({{host.data(), DType::uint8, pages.bytes.shape}, pages.layout}, keys.data, values.data,
            [](const std::byte* from, std::byte* to, size_t bytes) { std::memcpy(to, from, bytes); });
  device().upload(pages.bytes.data, host.data(), host.size());
}

}  // namespace maniple
