#include <kernels/contracts.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/reference/rows.hpp>

#include <algorithm>
#include <cstring>

namespace maniple::cpu {

namespace {

// Work below this many elements is not worth waking a thread for.
constexpr int64_t grain_elements = 1 << 15;

int64_t grain_rows(int64_t width) {
  return std::max<int64_t>(1, grain_elements / std::max<int64_t>(1, width));
}

// The address of an element, counted from the start of the view.
template <typename View>
auto element(const View& view, int64_t index) {
  return view.data + static_cast<size_t>(index) * size_of(view.dtype);
}

// residual += delta, in one row.
void add_row(const RowKernels& kernels, ConstTensorView delta, TensorView residual, int64_t row) {
  const int64_t width = residual.shape[1];
  std::byte* const sum = element(residual, row * width);
  if (delta.dtype == DType::fp32)
    kernels.add_floats(sum, delta.as<float>() + row * width, width);
  else
    kernels.add(sum, element(delta, row * width), width, sum);
}

}  // namespace

void CpuOps::rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) {
  contract::rms_norm(x, weight, out);
  const RowKernels& kernels = path_.of(x.dtype).rows;
  const int64_t width = x.shape[1];
  pool_->parallel_ranges(x.shape[0], grain_rows(width), [&](IndexRange rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row)
      kernels.rms_norm(element(x, row * width), weight.as<float>(), epsilon, width,
                       element(out, row * width));
  });
}

void CpuOps::add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                          TensorView out) {
  contract::rms_norm(residual, weight, out);
  contract::add_residual(delta, residual);
  const RowKernels& kernels = path_.of(residual.dtype).rows;
  const int64_t width = residual.shape[1];
  pool_->parallel_ranges(residual.shape[0], grain_rows(width), [&](IndexRange rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      add_row(kernels, delta, residual, row);
      kernels.rms_norm(element(residual, row * width), weight.as<float>(), epsilon, width,
                       element(out, row * width));
    }
  });
}

void CpuOps::add_residual(ConstTensorView delta, TensorView residual) {
  contract::add_residual(delta, residual);
  const RowKernels& kernels = path_.of(residual.dtype).rows;
  pool_->parallel_ranges(residual.shape[0], grain_rows(residual.shape[1]), [&](IndexRange rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) add_row(kernels, delta, residual, row);
  });
}

void CpuOps::gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) {
  contract::gate_mul(gate_up, out);
  const int64_t tokens = out.shape[0], width = out.shape[1];
  const RowKernels& kernels = path_.of(out.dtype).rows;
  pool_->parallel_ranges(tokens, grain_rows(width), [&](IndexRange rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row)
      kernels.gate_mul(activation, element(gate_up, 2 * row * width), element(gate_up, (2 * row + 1) * width),
                       width, element(out, row * width));
  });
}

void CpuOps::add(ConstTensorView a, ConstTensorView b, TensorView out) {
  contract::add(a, b, out);
  const RowKernels& kernels = path_.of(out.dtype).rows;
  pool_->parallel_ranges(out.shape.elements(), grain_elements, [&](IndexRange range) {
    kernels.add(element(a, range.begin), element(b, range.begin), range.size(), element(out, range.begin));
  });
}

void CpuOps::add_tree(std::span<const ConstTensorView> parts, TensorView out, TensorView copy) {
  require(!parts.empty(), "parts of a sum");
  for (const ConstTensorView& part : parts)
    require(part.shape == out.shape && part.dtype == out.dtype, "parts of a sum");
  require(copy.empty() || (copy.shape == out.shape && copy.dtype == out.dtype), "copy of a sum");
  const RowKernels& kernels = path_.of(out.dtype).rows;
  pool_->parallel_ranges(out.shape.elements(), grain_elements, [&](IndexRange range) {
    std::vector<const void*> begins;
    for (const ConstTensorView& part : parts) begins.push_back(element(part, range.begin));
    kernels.add_tree(begins.data(), std::ssize(begins), range.size(), element(out, range.begin),
                     copy.empty() ? nullptr : element(copy, range.begin));
  });
}

void CpuOps::add_bias(TensorView x, ConstTensorView bias) {
  contract::add_bias(x, bias);
  const int64_t width = x.shape[1];
  const RowKernels& kernels = path_.of(x.dtype).rows;
  pool_->parallel_ranges(x.shape[0], grain_rows(width), [&](IndexRange rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row)
      kernels.add_floats(element(x, row * width), bias.as<float>(), width);
  });
}

void CpuOps::add_gated(ConstTensorView x, ConstTensorView gate, TensorView sum) {
  contract::add_gated(x, gate, sum);
  pool_->parallel_ranges(x.shape[0], grain_rows(x.shape[1]),
                         [&](IndexRange rows) { reference::add_gated(x, gate, rows, sum); });
}

void CpuOps::gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) {
  contract::gather_rows(x, rows, out);
  const int64_t width = x.shape.row_elements();
  pool_->parallel_ranges(rows.shape[0], grain_rows(width), [&](IndexRange range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int32_t row = rows.as<int32_t>()[i];
      require(0 <= row && row < x.shape[0], "a gathered row outside the tensor");
      std::memcpy(element(out, i * width), element(x, row * width),
                  static_cast<size_t>(width) * size_of(x.dtype));
    }
  });
}

}  // namespace maniple::cpu
