#include <kernels/contracts.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/panel_product.hpp>
#include <kernels/reference/codes.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace maniple::cpu {
namespace {

// [panels, slices, units of a slice of 32 rows, elements of a unit]
Shape packed_shape(const PanelLayout& layout, int64_t rows, int64_t columns, int slices) {
  return {panels_of(rows), slices, layout.row_units(columns / slices) * panel_width, layout.group};
}

// --- packing ---

float widened(const std::byte* raw, DType dtype, int64_t i) {
  if (dtype == DType::fp32) {
    float value;
    std::memcpy(&value, raw + i * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, raw + i * 2, 2);
  return dtype == DType::bf16 ? float(std::bit_cast<BFloat16>(bits)) : float(std::bit_cast<Float16>(bits));
}

template <typename Element>
void convert(const std::byte* raw, DType from, int64_t count, Element* to) {
  if (from == (std::is_same_v<Element, BFloat16> ? DType::bf16 : DType::fp32)) {
    std::memcpy(to, raw, static_cast<size_t>(count) * sizeof(Element));
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i] = Element(widened(raw, from, i));
}

constexpr int units_at_once = 16;  // a cache line of each row

// Raw rows that go to consecutive lanes of one panel.
struct PanelRows {
  const std::byte* raw;  // of the first row, in the slice
  size_t row_bytes;
  DType dtype;
  int64_t columns;  // of the slice
  int first_lane, lanes;
};

template <typename Element>
void pack_slice(const PanelRows& rows, const PanelLayout& layout, uint32_t* slice) {
  const int64_t step = units_at_once * layout.group;
  uint32_t staged[panel_width][units_at_once];
  for (int64_t k = 0; k < rows.columns; k += step) {
    const int64_t count = std::min(step, rows.columns - k);
    if (count < step) std::memset(staged, 0, sizeof staged);
    const std::byte* raw = rows.raw + static_cast<size_t>(k) * size_of(rows.dtype);
    for (int r = 0; r < rows.lanes; ++r, raw += rows.row_bytes) {
      convert(raw, rows.dtype, count, reinterpret_cast<Element*>(staged[r]));
    }
    const int64_t units = (count + layout.group - 1) / layout.group;
    for (int64_t u = 0; u < units; ++u) {
      uint32_t* to = slice + layout.unit_offset(k / layout.group + u);
      for (int lane = rows.first_lane, r = 0; r < rows.lanes; ++lane, ++r)
        to[layout.lane_offset(lane)] = staged[r][u];
    }
  }
}

}  // namespace

Weight CpuOps::make_weight(const WeightShape& shape) {
  require_computable(shape);
  require(shape.slices <= max_slices, "the slices of a weight fit the tree of sums");
  if (shape.format != WeightFormat::dense) return make_codes(shape);
  const PanelLayout layout = path_.of(shape.dtype).matmul.layout;
  return {shape,
          Tensor(device(), shape.dtype, packed_shape(layout, shape.rows, shape.columns, shape.slices)),
          {},
          {},
          {}};
}

void CpuOps::pack(Weight& weight, int64_t first_row, const RawRows& rows_of_weight) {
  reference::require_rows_of(weight, first_row, rows_of_weight);
  if (weight.format != WeightFormat::dense) return pack_codes(weight, first_row, rows_of_weight);
  const ConstTensorView raw = rows_of_weight.values;
  const int64_t end = first_row + raw.shape[0];
  const PanelLayout layout = path_.of(weight.dtype).matmul.layout;
  const size_t row_bytes = static_cast<size_t>(weight.columns) * size_of(raw.dtype);
  const size_t slice_bytes = static_cast<size_t>(weight.slice_columns()) * size_of(raw.dtype);
  uint32_t* slice =
      reinterpret_cast<uint32_t*>(weight.packed.view().data) + first_row / panel_width * panel_units(weight);
  for (int64_t row = first_row; row < end;) {
    const int lane = static_cast<int>(row % panel_width);
    const int lanes = static_cast<int>(std::min<int64_t>(panel_width - lane, end - row));
    PanelRows rows{raw.data + static_cast<size_t>(row - first_row) * row_bytes,
                   row_bytes,
                   raw.dtype,
                   weight.slice_columns(),
                   lane,
                   lanes};
    for (int s = 0; s < weight.slices; ++s, rows.raw += slice_bytes, slice += weight.packed.shape()[2]) {
      if (weight.dtype == DType::bf16)
        pack_slice<BFloat16>(rows, layout, slice);
      else
        pack_slice<float>(rows, layout, slice);
    }
    row += lanes;
  }
}

uint32_t* CpuOps::matmul_scratch(int64_t units) {
  if (!matmul_scratch_ || matmul_scratch_.shape()[0] < units) {
    matmul_scratch_ = Tensor();
    matmul_scratch_ = Tensor(device(), DType::int32, {units});
  }
  return reinterpret_cast<uint32_t*>(matmul_scratch_.view().data);
}

RoundedRows CpuOps::rounded_rows(const PanelProduct& product, const WeightShape& shape, int64_t rows) {
  if (!product.rounds()) return {};
  const auto room = [](auto& memory, int64_t elements) {
    if (memory.size() < static_cast<size_t>(elements)) memory.resize(static_cast<size_t>(elements));
    return memory.data();
  };
  return {room(rounded_.values, rows * shape.columns * static_cast<int64_t>(size_of(shape.dtype))),
          room(rounded_.scales, rows * product.scales_of_row()), room(rounded_.sums, rows * shape.slices)};
}

uint32_t* CpuOps::pack_rows(const PanelProduct& product, const ProductRows& rows, const Weight& weight,
                            const RowTiles& tiles) {
  uint32_t* const packed = matmul_scratch(tiles.padded_rows() * product.row_units());
  constexpr int64_t least_bytes = 64 << 10;  // worth a thread, about 10 us
  const int64_t tile_bytes = tiles.tile_rows * product.row_units() * 4;
  pool_->parallel_ranges(tiles.count(), (least_bytes + tile_bytes - 1) / tile_bytes, [&](IndexRange range) {
    for (int64_t tile = range.begin; tile < range.end; ++tile) product.pack(rows, weight, tile, packed);
  });
  return packed;
}

void CpuOps::matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                    ConstTensorView row_maxima) {
  contract::matmul(x, weight, bias, out);
  const int64_t rows = x.shape[0];
  if (out.empty()) return;
  const PanelProduct product(path_, weight);
  const RowTiles tiles = product.tiles(rows);
  const ProductRows inputs{x, 0, rows, nullptr, row_maxima, rounded_rows(product, weight, rows)};
  uint32_t* const packed = pack_rows(product, inputs, weight, tiles);
  const Division division(tiles, weight, product.row_units() * 4, pool_->size());
  const auto multiply = [&](int64_t row_block, int64_t panel, int64_t panels) {
    const int64_t column = panel * panel_width;
    product.multiply(inputs, weight, panel,
                     {.x = packed,
                      .tiles = tiles,
                      .first_tile = division.first_tile(tiles, row_block),
                      .end_tile = division.first_tile(tiles, row_block + 1),
                      .width = std::min(weight.rows - column, panels * panel_width),
                      .bias = bias.data ? bias.as<float>() + column : nullptr,
                      .out = out.data + static_cast<size_t>(column) * size_of(out.dtype),
                      .out_stride = weight.rows,
                      .out_is_bf16 = out.dtype == DType::bf16});
  };
  pool_->parallel_ranges(division.row_blocks * division.panels, division.grain,
                         [&](IndexRange items) { for_each_run(items, division.panels, multiply); });
}

// Rows of x are heads of tokens here.
void CpuOps::matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, TensorView out) {
  contract::matmul_heads(x, weights, out);
  const auto heads = static_cast<int64_t>(weights.size()), tokens = x.shape[0], stride = out.shape[1] / heads;
  if (tokens == 0) return;
  const Weight& shape = *weights[0];
  const PanelProduct product(path_, shape);
  const RowTiles tiles = product.tiles(tokens);
  const int64_t units = tiles.padded_rows() * product.row_units();
  uint32_t* const packed = matmul_scratch(heads * units);
  head_rows_.resize(static_cast<size_t>(heads * tokens));
  for (int64_t i = 0; i < heads * tokens; ++i)
    head_rows_[static_cast<size_t>(i)] = static_cast<int32_t>(i % tokens * heads + i / tokens);
  const auto rows_of = [&](int64_t head) {
    return ProductRows{x.reshaped({tokens * heads, x.shape[1] / heads}), head * tokens, tokens,
                       head_rows_.data()};
  };
  constexpr int64_t least_packed = 64 << 10;  // bytes worth a thread
  pool_->parallel_ranges(heads, (least_packed + units * 4 - 1) / (units * 4), [&](IndexRange range) {
    for (int64_t head = range.begin; head < range.end; ++head)
      for (int64_t tile = 0; tile < tiles.count(); ++tile)
        product.pack(rows_of(head), shape, tile, packed + head * units);
  });
  const Division division(tiles, shape, product.row_units() * 4, pool_->size());
  const auto multiply = [&](int64_t block, int64_t panel, int64_t panels) {
    const int64_t head = block / division.row_blocks, row_block = block % division.row_blocks,
                  column = panel * panel_width;
    product.multiply(rows_of(head), *weights[static_cast<size_t>(head)], panel,
                     {.x = packed + head * units,
                      .tiles = tiles,
                      .first_tile = division.first_tile(tiles, row_block),
                      .end_tile = division.first_tile(tiles, row_block + 1),
                      .width = std::min(shape.rows - column, panels * panel_width),
                      .out = out.data + static_cast<size_t>(head * stride + column) * size_of(out.dtype),
                      .out_stride = heads * stride,
                      .out_is_bf16 = out.dtype == DType::bf16});
  };
  pool_->parallel_ranges(heads * division.row_blocks * division.panels, division.grain,
                         [&](IndexRange items) { for_each_run(items, division.panels, multiply); });
}

namespace {

// Reads a row of a packed table: the stored bits, except that -0 becomes +0.
template <typename Element>
void read_row(const Weight& table, const PanelLayout& layout, int64_t row, Element* out) {
  constexpr Element negative_zero = Element{1} << (sizeof(Element) * 8 - 1);
  constexpr int group = 4 / sizeof(Element);
  const int lane_offset = layout.lane_offset(static_cast<int>(row % panel_width));
  const uint32_t* slice = units_of(table) + row / panel_width * panel_units(table) + lane_offset;
  for (int s = 0; s < table.slices; ++s, slice += table.packed.shape()[2], out += table.slice_columns()) {
    for (int64_t k = 0; k < table.slice_columns(); ++k) {
      const uint32_t unit = slice[layout.unit_offset(k / group)];
      const Element bits = static_cast<Element>(k % group ? unit >> 16 : unit);
      out[k] = bits == negative_zero ? Element{0} : bits;
    }
  }
}

}  // namespace

void CpuOps::embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) {
  contract::embed(ids, table, vocabulary, out);
  const PanelLayout layout = path_.of(table.dtype).matmul.layout;
  const size_t row_bytes = static_cast<size_t>(table.columns) * size_of(table.dtype);
  pool_->parallel_ranges(ids.shape[0], 8, [&](IndexRange tokens) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const int64_t id = ids.as<int32_t>()[t];
      std::byte* to = out.data + static_cast<size_t>(t) * row_bytes;
      if (!vocabulary.contains(id))
        std::memset(to, 0, row_bytes);
      else if (table.format != WeightFormat::dense)
        read_code_row(table, id - vocabulary.begin, to);
      else if (table.dtype == DType::bf16)
        read_row(table, layout, id - vocabulary.begin, reinterpret_cast<uint16_t*>(to));
      else
        read_row(table, layout, id - vocabulary.begin, reinterpret_cast<uint32_t*>(to));
    }
  });
}

}  // namespace maniple::cpu
