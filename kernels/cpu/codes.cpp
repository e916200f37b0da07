#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/packed_rows.hpp>
#include <kernels/reference/codes.hpp>

#include <algorithm>
#include <cstring>

namespace maniple::cpu {
namespace {

bool multiplies_integers(const WeightShape& shape) {
  return shape.format == WeightFormat::int8 && shape.activation != ActivationRule::none;
}

// Where code k of a word begins (CodeBlock).
int bit_of(const WeightShape& shape, int k) {
  if (multiplies_integers(shape)) return 8 * k;
  return (shape.format == WeightFormat::int4 ? 4 : 8) * (k / 2) + 16 * (k % 2);
}

// f(run, first column, end)
template <typename F>
void for_runs(const WeightShape& shape, F f) {
  int64_t run = 0;
  for (int64_t column = 0; column < shape.columns; column = shape.run_end(column))
    f(run++, column, shape.run_end(column));
}

uint32_t* words_of(Weight& weight) { return reinterpret_cast<uint32_t*>(weight.packed.view().data); }

ScaleType scale_type_of(DType dtype) {
  return dtype == DType::bf16 ? ScaleType::bf16 : dtype == DType::fp16 ? ScaleType::fp16 : ScaleType::fp32;
}

float scale_of(ConstTensorView scales, int64_t i) { return reference::read(scales, i, 1)[0]; }

}  // namespace

PackedCodes CpuOps::packed_codes(const WeightShape& shape) const {
  if (multiplies_integers(shape)) return path_.integers;
  const PathKernels::Typed& of = path_.of(shape.dtype);
  const bool nibbles = shape.format == WeightFormat::int4;
  const int codes = nibbles ? 8 : 4, x_units = codes / of.matmul.layout.group;
  return {nibbles                             ? of.codes.int4
          : shape.format == WeightFormat::fp8 ? of.codes.fp8
                                              : of.codes.int8,
          of.matmul.tile_rows,
          of.matmul.row_step,
          {codes, std::max(1, of.matmul.layout.step / x_units), panel_width},
          of.matmul.layout};
}

// packed [panels, 1, words of 32 rows, bytes of a word], scales and zeros [panels, runs, 32].
Weight CpuOps::make_codes(const WeightShape& shape) {
  const PackedCodes product = packed_codes(shape);
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
  const PanelLayout layout = packed_codes(weight).words;
  const int64_t runs = weight.runs(), groups = weight.groups();
  int bits[8];
  for (int k = 0; k < layout.group; ++k) bits[k] = bit_of(weight, k);
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

ConstTensorView CpuOps::round_inputs(ConstTensorView x, const Weight& weight, ConstTensorView row_maxima) {
  const int64_t rows = x.shape[0], columns = x.shape[1], slice = weight.slice_columns();
  const bool integers = multiplies_integers(weight),
             by_group = weight.activation == ActivationRule::per_group;
  const int64_t scales_of_row = by_group ? weight.groups() : 1, width = by_group ? weight.group : columns;
  const InputKernels& kernels = path_.of(x.dtype).inputs;
  const TensorView codes{nullptr, integers ? DType::uint8 : x.dtype, x.shape};
  if (codes_.inputs.size() < codes.bytes()) codes_.inputs.resize(codes.bytes());
  std::byte* const to = codes_.inputs.data();
  codes_.input_scales.resize(static_cast<size_t>(rows * scales_of_row));
  codes_.input_sums.resize(static_cast<size_t>(rows * weight.slices));

  const auto round_part = [&](int64_t row, int64_t first, int64_t count, float scale) {
    const int64_t at = row * columns + first;
    const std::byte* const from = x.data + static_cast<size_t>(at) * size_of(x.dtype);
    if (!integers)
      return kernels.round_e4m3(from, count, scale, to + static_cast<size_t>(at) * size_of(x.dtype));
    for (int64_t c = 0; c < count; c += slice)
      codes_.input_sums[static_cast<size_t>(row * weight.slices + c / slice)] =
          kernels.round_int8(from + static_cast<size_t>(c) * size_of(x.dtype), slice, scale,
                             reinterpret_cast<int8_t*>(to + at + c));
  };
  constexpr int64_t grain = 1 << 14;  // elements
  pool_->parallel_ranges(rows, std::max<int64_t>(1, grain / columns), [&](IndexRange range) {
    for (int64_t row = range.begin; row < range.end; ++row)
      for (int64_t part = 0; part < scales_of_row; ++part) {
        const int64_t first = part * width, count = std::min(width, columns - first);
        const bool given = !by_group && !row_maxima.empty();
        const float largest =
            given ? reference::over_ranks(row_maxima, row)
                  : kernels.abs_maximum(
                        x.data + static_cast<size_t>(row * columns + first) * size_of(x.dtype), count);
        const float scale = reference::input_scale(weight, largest);
        codes_.input_scales[static_cast<size_t>(row * scales_of_row + part)] = scale;
        round_part(row, first, count, scale);
      }
  });
  return {to, codes.dtype, x.shape};
}

void CpuOps::multiply_codes(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                            ConstTensorView row_maxima) {
  const bool rounds = weight.activation != ActivationRule::none;
  const ConstTensorView inputs = rounds ? round_inputs(x, weight, row_maxima) : x;
  const PackedCodes product = packed_codes(weight);
  const PackedRow row{product.words, product.x_units()};
  const int64_t row_units = row.units_of(weight);
  const RowTiles tiles{x.shape[0], product.tile_rows, product.row_step};
  uint32_t* const packed = matmul_scratch(tiles.padded_rows() * row_units);
  pack_activations(*pool_, product.x.step, {inputs, weight, row, tiles, packed}, tiles.count(),
                   tiles.tile_rows * row_units * 4);

  codes_.run_words.clear();
  codes_.slice_runs.clear();
  for_runs(weight, [&](int64_t run, int64_t first, int64_t end) {
    if (first % weight.slice_columns() == 0) codes_.slice_runs.push_back(static_cast<int32_t>(run));
    codes_.run_words.push_back(static_cast<int32_t>(product.words.row_units(end - first)));
  });
  const auto runs = static_cast<int64_t>(codes_.run_words.size());
  codes_.slice_runs.push_back(static_cast<int32_t>(runs));

  uint8_t common_zeros[panel_width];
  std::fill_n(common_zeros, panel_width, static_cast<uint8_t>(weight.common_zero()));
  const float one = 1;
  const bool by_group = weight.activation == ActivationRule::per_group;
  const Division division(tiles, weight, row_units * 4, pool_->size());
  const auto multiply = [&](int64_t row_block, int64_t panel, int64_t panels) {
    thread_local std::vector<uint32_t> expanded;
    if (const auto room = static_cast<size_t>(row_units * panel_width); expanded.size() < room)
      expanded.resize(room);
    const int64_t column = panel * panel_width, scale = panel * runs * panel_width;
    CodeBlock block;
    static_cast<MatmulBlock&>(block) = {.x = packed,
                                        .tiles = tiles,
                                        .first_tile = division.first_tile(tiles, row_block),
                                        .end_tile = division.first_tile(tiles, row_block + 1),
                                        .slices = weight.slices,
                                        .slice_units = 0,
                                        .panels = units_of(weight) + panel * panel_units(weight),
                                        .width = std::min(weight.rows - column, panels * panel_width),
                                        .bias = bias.data ? bias.as<float>() + column : nullptr,
                                        .out = out.data + static_cast<size_t>(column) * size_of(out.dtype),
                                        .out_stride = weight.rows,
                                        .out_is_bf16 = out.dtype == DType::bf16};
    block.panel_words = panel_units(weight);
    block.row_units = row_units;
    block.run_words = codes_.run_words.data();
    block.slice_runs = codes_.slice_runs.data();
    block.scales = weight.scales.view().data + static_cast<size_t>(scale) * size_of(weight.scale);
    block.scale_type = scale_type_of(weight.scale);
    block.zeros = weight.zeros ? weight.zero_points.view().as<uint8_t>() + scale : common_zeros;
    block.zero_step = weight.zeros ? panel_width : 0;
    block.x_scales = rounds ? codes_.input_scales.data() : &one;
    block.x_scale_row = by_group ? runs : rounds ? 1 : 0;
    block.x_scale_run = by_group ? 1 : 0;
    block.x_sums = codes_.input_sums.data();
    block.expanded = expanded.data();
    product.run(block);
  };
  pool_->parallel_ranges(division.row_blocks * division.panels, division.grain,
                         [&](IndexRange items) { for_each_run(items, division.panels, multiply); });
}

void CpuOps::read_code_row(const Weight& table, int64_t row, std::byte* out) const {
  const PanelLayout layout = packed_codes(table).words;
  const int64_t panel = row / panel_width, runs = table.runs();
  const int lane = static_cast<int>(row % panel_width);
  const uint32_t* words = units_of(table) + panel * panel_units(table) + layout.lane_offset(lane);
  const uint32_t mask = table.format == WeightFormat::int4 ? 0xf : 0xff;
  std::vector<float> values(static_cast<size_t>(table.columns));
  for_runs(table, [&](int64_t run, int64_t first, int64_t end) {
    const int64_t at = (panel * runs + run) * panel_width + lane;
    const float scale = scale_of(table.scales, at);
    const int zero = table.zeros ? table.zero_points.view().as<uint8_t>()[at] : table.common_zero();
    for (int64_t c = first; c < end; ++c) {
      const auto k = static_cast<int>((c - first) % layout.group);
      const uint32_t code = words[layout.unit_offset((c - first) / layout.group)] >> bit_of(table, k) & mask;
      values[static_cast<size_t>(c)] = reference::code_value(table.format, code, zero) * scale + 0.0f;
    }
    words += layout.row_units(end - first) * panel_width;
  });
  reference::write({out, table.dtype, {table.columns}}, 0, values);
}

void CpuOps::row_abs_maxima(ConstTensorView x, TensorView out) {
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
  constexpr int64_t grain = 1 << 14;  // elements
  pool_->parallel_ranges(out.shape[0], std::max<int64_t>(1, grain / std::max<int64_t>(1, out.shape[1])),
                         [&](IndexRange tokens) { reference::gather_columns(x, order, tokens, out); });
}

}  // namespace maniple::cpu
