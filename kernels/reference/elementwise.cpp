#include <kernels/contracts.hpp>
#include <kernels/reference/reference_ops.hpp>
#include <kernels/reference/rows.hpp>

#include <cmath>
#include <cstring>

namespace maniple {

using reference::Floats;

void ReferenceOps::rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) {
  contract::rms_norm(x, weight, out);
  const int64_t tokens = x.shape[0], width = x.shape[1];
  for (int64_t t = 0; t < tokens; ++t) {
    Floats row = reference::read(x, t * width, width);
    const float mean_square = reference::dot(row.data(), row.data(), width) / static_cast<float>(width);
    const float scale = 1.0f / std::sqrt(mean_square + epsilon);
    for (int64_t i = 0; i < width; ++i)
      row[static_cast<size_t>(i)] = row[static_cast<size_t>(i)] * scale * weight.as<float>()[i];
    reference::write(out, t * width, row);
  }
}

void ReferenceOps::add_residual(ConstTensorView delta, TensorView residual) {
  contract::add_residual(delta, residual);
  const int64_t elements = residual.shape.elements();
  const Floats added = reference::read(delta, 0, elements);
  Floats sums = reference::read(residual, 0, elements);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += added[i];
  reference::write(residual, 0, sums);
}

void ReferenceOps::add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight,
                                float epsilon, TensorView out) {
  add_residual(delta, residual);
  rms_norm(residual, weight, epsilon, out);
}

void ReferenceOps::gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) {
  contract::gate_mul(gate_up, out);
  const int64_t tokens = out.shape[0], width = out.shape[1];
  for (int64_t t = 0; t < tokens; ++t) {
    Floats gate = reference::read(gate_up, 2 * t * width, width);
    const Floats up = reference::read(gate_up, (2 * t + 1) * width, width);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = reference::gated(activation, gate[i], up[i]);
    reference::write(out, t * width, gate);
  }
}

void ReferenceOps::add(ConstTensorView a, ConstTensorView b, TensorView out) {
  contract::add(a, b, out);
  Floats sums = reference::read(a, 0, a.shape.elements());
  const Floats added = reference::read(b, 0, a.shape.elements());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += added[i];
  reference::write(out, 0, sums);
}

void ReferenceOps::add_bias(TensorView x, ConstTensorView bias) {
  contract::add_bias(x, bias);
  const int64_t tokens = x.shape[0], width = x.shape[1];
  for (int64_t t = 0; t < tokens; ++t) {
    Floats row = reference::read(x, t * width, width);
    for (int64_t i = 0; i < width; ++i) row[static_cast<size_t>(i)] += bias.as<float>()[i];
    reference::write(x, t * width, row);
  }
}

void ReferenceOps::add_gated(ConstTensorView x, ConstTensorView gate, TensorView sum) {
  contract::add_gated(x, gate, sum);
  reference::add_gated(x, gate, {0, x.shape[0]}, sum);
}

void ReferenceOps::gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) {
  contract::gather_rows(x, rows, out);
  const size_t bytes = static_cast<size_t>(x.shape.row_elements()) * size_of(x.dtype);
  for (int64_t i = 0; i < rows.shape[0]; ++i) {
    const int32_t row = rows.as<int32_t>()[i];
    require(0 <= row && row < x.shape[0], "a gathered row outside the tensor");
    std::memcpy(out.data + static_cast<size_t>(i) * bytes, x.data + static_cast<size_t>(row) * bytes, bytes);
  }
}

}  // namespace maniple
