#include <kernels/contracts.hpp>
#include <kernels/reference/codes.hpp>
#include <kernels/reference/reference_ops.hpp>
#include <kernels/reference/rows.hpp>

#include <cstring>

namespace maniple {

using reference::Floats;

// Packed weights are row major here: elements or codes [rows, columns], scales and zeros [rows, groups].
Weight ReferenceOps::make_weight(const WeightShape& shape) {
  require_computable(shape);
  Weight weight{shape, {}, {}, {}, {}};
  const Shape elements{shape.rows, shape.columns}, groups{shape.rows, shape.groups()};
  const bool dense = shape.format == WeightFormat::dense;
  weight.packed = Tensor(device(), dense ? shape.dtype : DType::uint8, elements);
  if (!dense) weight.scales = Tensor(device(), shape.scale, groups);
  if (shape.zeros) weight.zero_points = Tensor(device(), DType::uint8, groups);
  if (shape.ordered) weight.order = Tensor(device(), DType::int32, {shape.columns});
  return weight;
}

void ReferenceOps::pack(Weight& weight, int64_t first_row, const RawRows& raw) {
  reference::require_rows_of(weight, first_row, raw);
  const int64_t count = raw.values.shape[0];
  const auto copy = [&](ConstTensorView from, TensorView to) {
    const TensorView rows = to.rows(first_row, count);
    if (from.dtype == to.dtype)
      std::memcpy(rows.data, from.data, rows.bytes());
    else
      reference::write(rows, 0, reference::read(from, 0, from.shape.elements()));
  };
  copy(raw.values, weight.packed);
  if (weight.format == WeightFormat::dense) return;
  copy(raw.scales, weight.scales);
  if (weight.zeros) copy(raw.zeros, weight.zero_points);
}

namespace {

// code - zero of a row of W, in its columns' order, and the scales of its groups.
struct RowOfCodes {
  Floats values, scales;

  RowOfCodes() = default;
  RowOfCodes(const Weight& weight, int64_t row)
      : values(static_cast<size_t>(weight.columns)),
        scales(reference::read(weight.scales, row * weight.groups(), weight.groups())) {
    const uint8_t* const codes = weight.packed.view().as<uint8_t>() + row * weight.columns;
    const uint8_t* const zeros =
        weight.zeros ? weight.zero_points.view().as<uint8_t>() + row * weight.groups() : nullptr;
    for (int64_t c = 0; c < weight.columns; ++c) {
      const int zero = zeros ? zeros[weight.group_of(c)] : weight.common_zero();
      values[static_cast<size_t>(c)] = reference::code_value(weight.format, codes[c], zero);
    }
  }
};

Floats row_of(const Weight& weight, int64_t row) {
  if (weight.format == WeightFormat::dense)
    return reference::read(weight.packed, row * weight.columns, weight.columns);
  RowOfCodes codes(weight, row);
  for (int64_t c = 0; c < weight.columns; ++c)
    codes.values[static_cast<size_t>(c)] *= codes.scales[static_cast<size_t>(weight.group_of(c))];
  return std::move(codes.values);
}

float sum_of_codes(const Weight& weight, const float* x, const float* w, int64_t count) {
  if (weight.format != WeightFormat::int8) return reference::dot(x, w, count);
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<int32_t>(x[i]) * static_cast<int32_t>(w[i]);
  return static_cast<float>(sum);
}

}  // namespace

void ReferenceOps::matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                          ConstTensorView row_maxima) {
  contract::matmul(x, weight, bias, out);
  const int64_t m = x.shape[0], n = weight.rows, k = weight.columns, slice = weight.slice_columns();
  Floats inputs = reference::read(x, 0, m * k);
  const bool rounds = weight.activation != ActivationRule::none;
  const Floats input_scales = rounds ? reference::round_inputs(weight, row_maxima, m, inputs) : Floats();
  const int64_t scales_of_input = weight.activation == ActivationRule::per_group ? weight.groups() : 1;
  const bool by_run = rounds || weight.format == WeightFormat::mxfp4;  // whose elements may exceed fp32
  Floats results(static_cast<size_t>(m * n)), parts(static_cast<size_t>(weight.slices));
  for (int64_t column = 0; column < n; ++column) {
    const RowOfCodes codes = by_run ? RowOfCodes(weight, column) : RowOfCodes();
    const Floats weights = by_run ? Floats() : row_of(weight, column);
    // A slice is one sum, or one for each run, with its scales.
    const auto sum_slice = [&](int64_t row, int64_t first) {
      const float* const of_row = &inputs[static_cast<size_t>(row * k)];
      if (!by_run) return reference::dot(of_row + first, &weights[static_cast<size_t>(first)], slice);
      float sum = 0;
      for (int64_t c = first; c < first + slice; c = weight.run_end(c)) {
        const auto group = static_cast<size_t>(weight.group_of(c));
        const float sx =
            rounds
                ? input_scales[static_cast<size_t>(row * scales_of_input) + (scales_of_input > 1 ? group : 0)]
                : 1;
        const float part =
            sum_of_codes(weight, of_row + c, &codes.values[static_cast<size_t>(c)], weight.run_end(c) - c);
        sum += part * (sx * codes.scales[group]);
      }
      return sum;
    };
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t s = 0; s < weight.slices; ++s) parts[static_cast<size_t>(s)] = sum_slice(row, s * slice);
      const float sum = reference::tree_sum(parts);
      results[static_cast<size_t>(row * n + column)] = bias.empty() ? sum : sum + bias.as<float>()[column];
    }
  }
  reference::write(out, 0, results);
}

void ReferenceOps::matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, TensorView out) {
  contract::matmul_heads(x, weights, out);
  const Weight& shape = *weights[0];
  const auto heads = static_cast<int64_t>(weights.size()), of_x = x.shape[1] / heads,
             of_out = out.shape[1] / heads;
  for (int64_t row = 0; row < x.shape[0] * heads; ++row) {
    const Floats input = reference::read(x, row * of_x, shape.columns);
    Floats results;
    for (int64_t column = 0; column < shape.rows; ++column)
      results.push_back(reference::dot(
          input.data(), row_of(*weights[static_cast<size_t>(row % heads)], column).data(), shape.columns));
    reference::write(out, row * of_out, results);
  }
}

void ReferenceOps::row_abs_maxima(ConstTensorView x, TensorView out) {
  contract::row_abs_maxima(x, out);
  const int64_t width = x.shape[1];
  for (int64_t t = 0; t < x.shape[0]; ++t)
    out.as<float>()[t] = reference::abs_maximum(reference::read(x, t * width, width));
}

void ReferenceOps::gather_columns(ConstTensorView x, ConstTensorView order, TensorView out) {
  contract::gather_columns(x, order, out);
  reference::gather_columns(x, order, {0, out.shape[0]}, out);
}

void ReferenceOps::embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) {
  contract::embed(ids, table, vocabulary, out);
  const int64_t tokens = ids.shape[0], width = table.columns;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t id = ids.as<int32_t>()[t];
    const bool here = vocabulary.contains(id);
    reference::write(out, t * width,
                     here ? row_of(table, id - vocabulary.begin) : Floats(static_cast<size_t>(width)));
  }
}

}  // namespace maniple
