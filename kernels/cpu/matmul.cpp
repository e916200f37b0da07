#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/packed_rows.hpp>
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

// --- products ---

void pack_activations(ThreadPool& pool, const PanelLayout& layout, const ActivationPacker& packer,
                      int64_t tiles, int64_t tile_bytes) {
  constexpr int64_t least_bytes = 64 << 10;  // worth a thread, about 10 us
  pool.parallel_ranges(tiles, (least_bytes + tile_bytes - 1) / tile_bytes, [&](IndexRange range) {
    for (int64_t tile = range.begin; tile < range.end; ++tile)
      layout.step == 1 ? packer.pack<1>(tile) : packer.pack<16>(tile);
  });
}

// Divides a product into items for the threads: blocks of rows whose activations fit L2, times panels. Block
// sizes differ by at most one tile. A product with few panels gets more blocks.
struct Division {
  int64_t row_blocks, panels, grain;

  Division(const RowTiles& tiles, const Weight& weight, int64_t row_bytes, int threads)
      : panels(panels_of(weight.rows)) {
    constexpr int64_t l2_share = 512 << 10;    // bytes of x
    constexpr int64_t least_work = 256 << 10;  // bytes of weights worth a thread, about 10 us
    constexpr int64_t free_rows = 16;          // up to this many cost no more than reading the weights
    const int64_t tiles_in_block = std::max<int64_t>(1, l2_share / (tiles.tile_rows * row_bytes));
    const int64_t wanted = (4 * threads + panels - 1) / panels;
    row_blocks =
        std::min(tiles.count(), std::max(wanted, (tiles.count() + tiles_in_block - 1) / tiles_in_block));
    const int64_t item = panel_units(weight) * 4 * std::max<int64_t>(1, tiles.rows / row_blocks / free_rows);
    grain = (least_work + item - 1) / item;
  }
  int64_t first_tile(const RowTiles& tiles, int64_t row_block) const {
    return tiles.count() * row_block / row_blocks;
  }
};

// Items are ordered by row block, then panel: a range of items is a few runs of panels.
template <typename Run>
void for_each_run(IndexRange items, int64_t panels, Run run) {
  while (items.size() > 0) {
    const int64_t row_block = items.begin / panels, first = items.begin % panels;
    const int64_t count = std::min(panels - first, items.size());
    run(row_block, first, count);
    items.begin += count;
  }
}

}  // namespace

Weight CpuOps::make_weight(const WeightShape& shape) {
  require_computable(shape);
  require(shape.slices <= max_slices, "the slices of a weight fit the tree of sums");
  require(shape.format == WeightFormat::dense, "weights of codes");
  const PanelLayout layout = path_.of(shape.dtype).matmul.layout;
  return {shape,
          Tensor(device(), shape.dtype, packed_shape(layout, shape.rows, shape.columns, shape.slices)),
          {},
          {},
          {}};
}

void CpuOps::pack(Weight& weight, int64_t first_row, const RawRows& rows_of_weight) {
  reference::require_rows_of(weight, first_row, rows_of_weight);
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

void CpuOps::matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                    ConstTensorView /*row_maxima*/) {
  const int64_t rows = x.shape[0];
  require(x.shape[1] == weight.columns && out.shape[0] == rows && out.shape[1] == weight.rows,
          "matmul: shapes agree");
  require(x.dtype == weight.dtype && (out.dtype == x.dtype || out.dtype == DType::fp32),
          "matmul: types agree");
  require(!bias.data || (bias.dtype == DType::fp32 && bias.shape.elements() == weight.rows),
          "matmul: an fp32 bias for each column");
  if (out.empty()) return;
  const PackedMatmul kernel = path_.of(weight.dtype).matmul;
  const RowTiles tiles{rows, kernel.tile_rows, kernel.row_step};
  const int64_t row_units = panel_units(weight) / panel_width;
  uint32_t* packed = matmul_scratch(tiles.padded_rows() * row_units);
  pack_activations(*pool_, kernel.layout, {x, weight, tiles, packed}, tiles.count(),
                   tiles.tile_rows * row_units * 4);

  const Division division(tiles, weight, row_units * 4, pool_->size());
  const auto multiply = [&](int64_t row_block, int64_t panel, int64_t panels) {
    const int64_t column = panel * panel_width;
    kernel.run({.x = packed,
                .tiles = tiles,
                .first_tile = division.first_tile(tiles, row_block),
                .end_tile = division.first_tile(tiles, row_block + 1),
                .slices = weight.slices,
                .slice_units = row_units / weight.slices,
                .panels = units_of(weight) + panel * panel_units(weight),
                .width = std::min(weight.rows - column, panels * panel_width),
                .bias = bias.data ? bias.as<float>() + column : nullptr,
                .out = out.data + static_cast<size_t>(column) * size_of(out.dtype),
                .out_stride = weight.rows,
                .out_is_bf16 = out.dtype == DType::bf16});
  };
  pool_->parallel_ranges(division.row_blocks * division.panels, division.grain,
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

void CpuOps::row_abs_maxima(ConstTensorView x, TensorView out) {
  const int64_t width = x.shape[1];
  for (int64_t t = 0; t < x.shape[0]; ++t)
    out.as<float>()[t] = reference::abs_maximum(reference::read(x, t * width, width));
}

void CpuOps::gather_columns(ConstTensorView x, ConstTensorView order, TensorView out) {
  constexpr int64_t grain = 1 << 14;  // elements
  pool_->parallel_ranges(out.shape[0], std::max<int64_t>(1, grain / std::max<int64_t>(1, out.shape[1])),
                         [&](IndexRange tokens) { reference::gather_columns(x, order, tokens, out); });
}

void CpuOps::embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) {
  require(ids.dtype == DType::int32 && out.dtype == table.dtype,
          "embed: ids are int32, rows are of the table's type");
  require(out.shape[0] == ids.shape[0] && out.shape[1] == table.columns && vocabulary.size() <= table.rows,
          "embed: shapes agree");
  const PanelLayout layout = path_.of(table.dtype).matmul.layout;
  const size_t row_bytes = static_cast<size_t>(table.columns) * size_of(table.dtype);
  pool_->parallel_ranges(ids.shape[0], 8, [&](IndexRange tokens) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const int64_t id = ids.as<int32_t>()[t];
      std::byte* to = out.data + static_cast<size_t>(t) * row_bytes;
      if (!vocabulary.contains(id))
        std::memset(to, 0, row_bytes);
      else if (table.dtype == DType::bf16)
        read_row(table, layout, id - vocabulary.begin, reinterpret_cast<uint16_t*>(to));
      else
        read_row(table, layout, id - vocabulary.begin, reinterpret_cast<uint32_t*>(to));
    }
  });
}

}  // namespace maniple::cpu
