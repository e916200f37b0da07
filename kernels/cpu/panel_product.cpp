#include <kernels/cpu/panel_product.hpp>
#include <kernels/reference/codes.hpp>

namespace maniple::cpu {
namespace {

bool multiplies_integers(const WeightShape& shape) {
  return shape.format == WeightFormat::int8 && shape.activation != ActivationRule::none;
}

ScaleType scale_type_of(DType dtype) {
  return dtype == DType::bf16   ? ScaleType::bf16
         : dtype == DType::fp16 ? ScaleType::fp16
         : dtype == DType::e8m0 ? ScaleType::e8m0
                                : ScaleType::fp32;
}

CodeKernel kernel_of(const CodeKernels& kernels, WeightFormat format) {
  switch (format) {
    case WeightFormat::dense:
      return nullptr;
    case WeightFormat::int8:
      return kernels.int8;
    case WeightFormat::fp8:
      return kernels.fp8;
    case WeightFormat::int4:
      return kernels.int4;
    case WeightFormat::mxfp4:
      return kernels.mxfp4;
  }
  return nullptr;
}

struct alignas(64) Line {  // of the cache
  uint32_t units[16];
};

// Room for one panel of widened codes, of each thread.
uint32_t* widened_panel(int64_t units) {
  thread_local std::vector<Line> panel;
  const size_t lines = (static_cast<size_t>(units) * 4 + sizeof(Line) - 1) / sizeof(Line);
  if (panel.size() < lines) panel.resize(lines);
  return panel.data()->units;
}

}  // namespace

PackedCodes packed_codes(const PathKernels& path, const WeightShape& shape) {
  if (multiplies_integers(shape)) return path.integers;
  const PathKernels::Typed& of = path.of(shape.dtype);
  const PackedMatmul& dense = of.matmul;
  if (shape.format == WeightFormat::dense)
    return {nullptr, dense.tile_rows, dense.row_step, dense.layout, dense.x};
  const int codes = 32 / bits_of(shape.format), x_units = codes / dense.x.group;
  return {kernel_of(of.codes, shape.format),
          dense.tile_rows,
          dense.row_step,
          {codes, std::max(1, dense.x.step / x_units), panel_width},
          dense.x};
}

int bit_of_code(const WeightShape& shape, int k) {
  if (multiplies_integers(shape)) return 8 * k;
  return bits_of(shape.format) * (k / 2) + 16 * (k % 2);
}

PanelProduct::PanelProduct(const PathKernels& path, const WeightShape& shape)
    : shape_(shape),
      inputs_(path.of(shape.dtype).inputs),
      dense_(path.of(shape.dtype).matmul.run),
      codes_(packed_codes(path, shape)),
      row_{codes_.words, codes_.x_units()},
      row_units_(row_.units_of(shape)) {
  if (shape.format == WeightFormat::dense) return;
  for (int64_t column = 0, end; column < shape.columns; column = end) {
    end = shape.run_end(column);
    if (column % shape.slice_columns() == 0) slice_runs_.push_back(static_cast<int32_t>(run_words_.size()));
    run_words_.push_back(static_cast<int32_t>(codes_.words.row_units(end - column)));
  }
  slice_runs_.push_back(static_cast<int32_t>(run_words_.size()));
}

void PanelProduct::round(const ProductRows& rows, const Weight& weight, int64_t row) const {
  const int64_t columns = shape_.columns, slice = shape_.slice_columns(), parts = scales_of_row();
  const int64_t width = parts > 1 ? shape_.group : columns, from_row = rows.index ? rows.index[row] : row;
  const size_t element = size_of(rows.x.dtype);
  const auto x = [&](int64_t column) {
    return rows.x.data + static_cast<size_t>(from_row * columns + column) * element;
  };
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = part * width, end = std::min(columns, first + width);
    const bool given = shape_.activation == ActivationRule::per_token && !rows.row_maxima.empty();
    const float largest =
        given ? reference::over_ranks(rows.row_maxima, from_row) : inputs_.abs_maximum(x(first), end - first);
    const float scale = reference::input_scale(weight, largest);
    rows.rounded.scales[row * parts + part] = scale;
    std::byte* const to = rows.rounded.values + static_cast<size_t>(row * columns + first) *
                                                    (multiplies_integers(shape_) ? 1 : element);
    if (!multiplies_integers(shape_))
      inputs_.round_e4m3(x(first), end - first, scale, to);
    else
      for (int64_t s = 0; s < shape_.slices; ++s)
        rows.rounded.sums[row * shape_.slices + s] =
            inputs_.round_int8(x(s * slice), slice, scale, reinterpret_cast<int8_t*>(to + s * slice));
  }
}

void PanelProduct::pack(const ProductRows& rows, const Weight& weight, int64_t tile, uint32_t* packed) const {
  const RowTiles tiles = this->tiles(rows.count);
  const auto pack_tile = [&](const ActivationPacker& packer) {
    if (codes_.x.step == 16) return packer.pack<16>(tile);
    codes_.x.group == 1 && rows.x.dtype == DType::bf16 ? packer.pack<1, true>(tile) : packer.pack<1>(tile);
  };
  if (!rounds() && rows.index)
    return pack_tile({rows.x, shape_, row_, tiles, packed, rows.index + rows.first});
  if (!rounds()) return pack_tile({rows.x.rows(rows.first, rows.count), shape_, row_, tiles, packed});
  for (int64_t row = tiles.first_row(tile); row < tiles.first_row(tile + 1); ++row)
    round(rows, weight, rows.first + row);
  const DType codes = multiplies_integers(shape_) ? DType::uint8 : rows.x.dtype;
  const ConstTensorView rounded{rows.rounded.values, codes, {rows.first + rows.count, shape_.columns}};
  pack_tile({rounded.rows(rows.first, rows.count), shape_, row_, tiles, packed});
}

void PanelProduct::multiply(const ProductRows& rows, const Weight& weight, int64_t panel,
                            MatmulBlock block) const {
  block.slices = shape_.slices;
  block.slice_units = row_units_ / codes_.x_units() / shape_.slices;
  block.panels = units_of(weight) + panel * panel_units(weight);
  if (shape_.format == WeightFormat::dense) return dense_(block);

  const auto runs = static_cast<int64_t>(run_words_.size()), scale = panel * runs * panel_width;
  uint8_t common_zeros[panel_width];
  std::fill_n(common_zeros, panel_width, static_cast<uint8_t>(shape_.common_zero()));
  constexpr float one = 1;
  const bool by_group = scales_of_row() > 1;
  CodeBlock codes;
  static_cast<MatmulBlock&>(codes) = block;
  codes.panel_words = panel_units(weight);
  codes.row_units = row_units_;
  codes.run_words = run_words_.data();
  codes.slice_runs = slice_runs_.data();
  codes.scales = weight.scales.view().data + static_cast<size_t>(scale) * size_of(shape_.scale);
  codes.scale_type = scale_type_of(shape_.scale);
  codes.zeros = shape_.zeros ? weight.zero_points.view().as<uint8_t>() + scale : common_zeros;
  codes.zero_step = shape_.zeros ? panel_width : 0;
  codes.x_scales = rounds() ? rows.rounded.scales + rows.first * scales_of_row() : &one;
  codes.x_scale_row = rounds() ? scales_of_row() : 0;
  codes.x_scale_run = by_group ? 1 : 0;
  codes.x_sums = multiplies_integers(shape_) ? rows.rounded.sums + rows.first * shape_.slices : nullptr;
  codes.expanded = widened_panel(row_units_ * panel_width);
  codes_.run(codes);
}

}  // namespace maniple::cpu
