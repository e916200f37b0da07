#include <kernels/contracts.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/packed_rows.hpp>

#include <algorithm>
#include <vector>

namespace maniple::cpu {

constexpr int64_t l1_floats = 4 << 10;

// The halves of gate_up are gate and up. Where they consist of whole panels, a panel of both is multiplied and gated while its
// sums are in a cache; else all sums go through memory. They are fp32 in both cases: the bits are the same.
bool CpuOps::matmul_gate_mul(GateActivation activation, ConstTensorView x, const Weight& gate_up,
                             ConstTensorView bias, TensorView out) {
  contract::matmul_gate_mul(x, gate_up, bias, out);
  const int64_t rows = x.shape[0], width = out.shape[1];
  if (out.empty()) return true;
  const RowKernels& kernels = path_.of(x.dtype).rows;
  const auto gate = [&](int64_t row, int64_t column, int64_t columns, const float* gates, const float* ups) {
    kernels.gate_mul_floats(activation, gates, ups, columns,
                            out.data + static_cast<size_t>(row * width + column) * size_of(out.dtype));
  };
  if (width % panel_width != 0) {
    Tensor sums(device(), DType::fp32, {rows, 2 * width});
    matmul(x, gate_up, bias, sums.view());
    const auto* const all = sums.view().as<float>();
    constexpr int64_t grain = 1 << 14;  // elements
    pool_->parallel_ranges(rows, std::max<int64_t>(1, grain / width), [&](IndexRange range) {
      for (int64_t row = range.begin; row < range.end; ++row)
        gate(row, 0, width, all + 2 * row * width, all + (2 * row + 1) * width);
    });
    return true;
  }

  const PanelProduct product(path_, gate_up);
  const RowTiles tiles = product.tiles(rows);
  const ProductRows inputs{x, 0, rows, nullptr, {}, rounded_rows(product, gate_up, rows)};
  uint32_t* const packed = pack_rows(product, inputs, gate_up, tiles);
  Division division(tiles, gate_up, product.row_units() * 4, pool_->size());
  const int64_t half = division.panels = width / panel_width;
  division.grain = (division.grain + 1) / 2;
  // So many panels at a time that the sums of both halves stay in L1.
  const int64_t most =
      std::clamp<int64_t>(l1_floats / (2 * panel_width * (rows / division.row_blocks)), 1, half);
  const auto multiply = [&](int64_t row_block, int64_t first, int64_t count) {
    thread_local std::vector<float> scratch;
    scratch.resize(std::max(scratch.size(), static_cast<size_t>(2 * rows * most * panel_width)));
    MatmulBlock block{.x = packed,
                      .tiles = tiles,
                      .first_tile = division.first_tile(tiles, row_block),
                      .end_tile = division.first_tile(tiles, row_block + 1)};
    const auto panel_at = [&](int64_t panel) { return units_of(gate_up) + panel * panel_units(gate_up); };
    for (int64_t panel = first, panels; panel < first + count; panel += panels) {
      panels = std::min(most, first + count - panel);
      const int64_t columns = block.width = block.out_stride = panels * panel_width;
      float* const sums[2] = {scratch.data(), scratch.data() + rows * columns};
      for (const int64_t up : {0, 1}) {
        const int64_t part = panel + up * half;
        block.next = up == 0                 ? panel_at(part + half)
                     : panel + panels < half ? panel_at(panel + panels)
                                             : nullptr;
        block.bias = bias.data ? bias.as<float>() + part * panel_width : nullptr;
        block.out = sums[up];
        product.multiply(inputs, gate_up, part, block);
      }
      for (int64_t row = tiles.first_row(block.first_tile); row < tiles.first_row(block.end_tile); ++row)
        gate(row, panel * panel_width, columns, sums[0] + row * columns, sums[1] + row * columns);
    }
  };
  pool_->parallel_ranges(division.row_blocks * division.panels, division.grain,
                         [&](IndexRange items) { for_each_run(items, division.panels, multiply); });
  return true;
}

}  // namespace maniple::cpu
