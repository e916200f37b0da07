#include <kernels/contracts.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/panel_product.hpp>
#include <kernels/reference/codes.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace maniple::cpu {
namespace {

// f(run, first column, end)
template <typename F>
void for_runs(const WeightShape& shape, F f) {
  int64_t run = 0;
  for (int64_t column = 0; column < shape.columns; column = shape.run_end(column))
    f(run++, column, shape.run_end(column));
}

uint32_t* words_of(Weight& weight) { return reinterpret_cast<uint32_t*>(weight.packed.view().data); }

float scale_of(ConstTensorView scales, int64_t i) { return reference::read(scales, i, 1)[0]; }

}  // namespace

// packed [panels, 1, words of 32 rows, bytes of a word], scales and zeros [panels, runs, 32].
Weight CpuOps::make_codes(const WeightShape& shape) {
  const PackedCodes product = packed_codes(path_, shape);
  const int64_t panels = panels_of(shape.rows), words = PackedRow{product.words, 1}.units_of(shape);
  const Shape runs{panels, shape.runs(), panel_width};
  Weight weight{shape,
                Tensor(device(), DType::uint8, {panels, 1, words * panel_width, 4}),
                Tensor(device(), shape.scale, runs),
                {},
                {}};
  if (shape.zeros) weight.zero_points = Tensor(device(), DType::uint8, runs);
  if (shape.ordered) weight.order = Tensor(device(), DType::int32, {shape.columns});
  return weight;
}

void CpuOps::pack_codes(Weight& weight, int64_t first_row, const RawRows& raw) {
  const PanelLayout layout = packed_codes(path_, weight).words;
  const int64_t runs = weight.runs(), groups = weight.groups();
  int bits[8];
  for (int k = 0; k < layout.group; ++k) bits[k] = bit_of_code(weight, k);
  for (int64_t r = 0; r < raw.values.shape[0]; ++r) {
    const int64_t row = first_row + r, panel = row / panel_width;
    const int lane = static_cast<int>(row % panel_width);
    const uint8_t* const codes = raw.values.as<uint8_t>() + r * weight.columns;
    uint32_t* to = words_of(weight) + panel * panel_units(weight) + layout.lane_offset(lane);
    for_runs(weight, [&](int64_t run, int64_t first, int64_t end) {
      for (int64_t column = first, word = 0; column < end; column += layout.group, ++word) {
        uint32_t packed = 0;
        const auto count = static_cast<int>(std::min<int64_t>(layout.group, end - column));
        for (int k = 0; k < count; ++k) packed |= uint32_t{codes[column + k]} << bits[k];
        to[layout.unit_offset(word)] = packed;
      }
      to += layout.row_units(end - first) * panel_width;
      const int64_t group = r * groups + weight.group_of(first),
                    at = (panel * runs + run) * panel_width + lane;
      const TensorView scale{weight.scales.view().data, weight.scale, weight.scales.shape()};
      if (raw.scales.dtype == weight.scale)
        std::memcpy(scale.data + static_cast<size_t>(at) * size_of(scale.dtype),
                    raw.scales.data + static_cast<size_t>(group) * size_of(scale.dtype),
                    size_of(scale.dtype));
      else
        reference::write(scale, at, std::array{scale_of(raw.scales, group)});
      if (weight.zeros) weight.zero_points.view().as<uint8_t>()[at] = raw.zeros.as<uint8_t>()[group];
    });
  }
}

void CpuOps::read_code_row(const Weight& table, int64_t row, std::byte* out) const {
  const PanelLayout layout = packed_codes(path_, table).words;
  const int64_t panel = row / panel_width, runs = table.runs();
  const int lane = static_cast<int>(row % panel_width);
  const uint32_t* words = units_of(table) + panel * panel_units(table) + layout.lane_offset(lane);
  const uint32_t mask = (1u << bits_of(table.format)) - 1;
  std::vector<float> values(static_cast<size_t>(table.columns));
  for_runs(table, [&](int64_t run, int64_t first, int64_t end) {
    const int64_t at = (panel * runs + run) * panel_width + lane;
    const float scale = scale_of(table.scales, at);
    const int zero = table.zeros ? table.zero_points.view().as<uint8_t>()[at] : table.common_zero();
    for (int64_t c = first; c < end; ++c) {
      const auto k = static_cast<int>((c - first) % layout.group);
      const uint32_t code =
          words[layout.unit_offset((c - first) / layout.group)] >> bit_of_code(table, k) & mask;
      values[static_cast<size_t>(c)] = reference::code_value(table.format, code, zero) * scale + 0.0f;
    }
    words += layout.row_units(end - first) * panel_width;
  });
  reference::write({out, table.dtype, {table.columns}}, 0, values);
}

void CpuOps::row_abs_maxima(ConstTensorView x, TensorView out) {
  contract::row_abs_maxima(x, out);
  constexpr int64_t grain = 1 << 15;  // elements
  const int64_t width = x.shape[1];
  const auto abs_maximum = path_.of(x.dtype).inputs.abs_maximum;
  pool_->parallel_ranges(
      x.shape[0], std::max<int64_t>(1, grain / std::max<int64_t>(1, width)), [&](IndexRange rows) {
        for (int64_t row = rows.begin; row < rows.end; ++row)
          out.as<float>()[row] =
              abs_maximum(x.data + static_cast<size_t>(row * width) * size_of(x.dtype), width);
      });
}

void CpuOps::gather_columns(ConstTensorView x, ConstTensorView order, TensorView out) {
  contract::gather_columns(x, order, out);
  constexpr int64_t grain = 1 << 14;  // elements
  pool_->parallel_ranges(out.shape[0], std::max<int64_t>(1, grain / std::max<int64_t>(1, out.shape[1])),
                         [&](IndexRange tokens) { reference::gather_columns(x, order, tokens, out); });
}

}  // namespace maniple::cpu
