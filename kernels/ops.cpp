#include <kernels/ops.hpp>

#include <array>
#include <bit>

namespace maniple {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ExitCode::input, "attention with " + what + " is not supported",
              "no backend computes it, and results without it would be another model's",
              "use a model that does not need it");
}

}  // namespace

void Ops::attention(const AttentionCall& call) {
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

}  // namespace maniple
