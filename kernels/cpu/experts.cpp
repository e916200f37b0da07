#include <kernels/contracts.hpp>
#include <kernels/cpu/cpu_ops.hpp>

#include <algorithm>

namespace maniple::cpu {
namespace {

constexpr int64_t most_block_rows = 128;    // the sums of a panel pair stay in L1
constexpr int64_t block_bytes = 512 << 10;  // of activations: a share of L2
constexpr int64_t least_work = 256 << 10;   // bytes of weights worth a thread, about 10 us
constexpr int64_t tasks_a_thread = 8;       // or more, where they have least_work
constexpr int64_t free_rows = 16;           // up to this many cost no more than reading the weights

}  // namespace

// A product over all experts of a routing, panel by panel.
struct CpuOps::GroupedProduct {
  ConstTensorView x;
  const int32_t* index;  // the row of x for each row; null: the same
  ConstTensorView row_maxima;
  const Routing& routing;
  std::span<const Weight* const> weights;
  int64_t panels;        // of each expert
  int64_t panel_weight;  // panels of weights that one of them reads
  // Computes panels [first, first + count) of a block of rows from packed activations.
  using Panels = FunctionRef<void(int64_t panel, MatmulBlock)>;  // of the block's expert
  FunctionRef<void(const RowBlock&, MatmulBlock, int64_t first, int64_t count, Panels)> multiply;
};

// Rows of one expert form blocks, each packed and divided into tiles on its own; tasks are runs of panels of a block.
void CpuOps::multiply_grouped(const GroupedProduct& product) {
  const Weight& shape = *product.weights[0];
  const PanelProduct kernel(path_, shape);
  const int64_t row_units = kernel.row_units();
  const int64_t most =
      std::clamp<int64_t>(block_bytes / (row_units * 4), kernel.tile_rows(), most_block_rows);
  row_blocks_.clear();
  int64_t units = 0;
  for (int64_t expert = 0; expert < product.routing.experts.size(); ++expert) {
    const IndexRange rows = product.routing.rows_of(expert);
    const int64_t blocks = (rows.size() + most - 1) / most;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = rows.size() * block / blocks, end = rows.size() * (block + 1) / blocks;
      row_blocks_.push_back({expert, rows.begin + first, end - first, units});
      units += kernel.tiles(row_blocks_.back().rows).padded_rows() * row_units;
    }
  }
  const auto count = static_cast<int64_t>(row_blocks_.size());
  if (count == 0) return;
  uint32_t* const packed = matmul_scratch(units);
  const int64_t rows = product.routing.rows();
  const RoundedRows rounded = rounded_rows(kernel, shape, rows);
  const auto weight_of = [&](const RowBlock& block) -> const Weight& {
    return *product.weights[static_cast<size_t>(block.expert)];
  };
  const auto rows_of = [&](const RowBlock& block) {
    return ProductRows{product.x, block.first_row, block.rows, product.index, product.row_maxima, rounded};
  };
  constexpr int64_t least_packed = 64 << 10;  // bytes worth a thread
  const int64_t packed_block = std::max<int64_t>(1, rows * row_units * 4 / count);
  pool_->parallel_ranges(count, (least_packed + packed_block - 1) / packed_block, [&](IndexRange blocks) {
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      const RowBlock& block = row_blocks_[static_cast<size_t>(b)];
      for (int64_t tile = 0; tile < kernel.tiles(block.rows).count(); ++tile)
        kernel.pack(rows_of(block), weight_of(block), tile, packed + block.packed);
    }
  });

  const int64_t work =
      panel_units(shape) * 4 * product.panel_weight * std::max<int64_t>(1, rows / count / free_rows);
  const int64_t few = count * product.panels / (tasks_a_thread * pool_->size());
  const int64_t run = std::clamp<int64_t>(std::max((least_work + work - 1) / work, few), 1, product.panels);
  const int64_t runs = (product.panels + run - 1) / run;
  const auto first_panel = [&](int64_t task) -> const uint32_t* {
    if (task >= count * runs) return nullptr;
    const RowBlock& block = row_blocks_[static_cast<size_t>(task / runs)];
    return units_of(*product.weights[static_cast<size_t>(block.expert)]) +
           task % runs * run * panel_units(shape);
  };
  pool_->parallel_tasks(count * runs, [&](int64_t task) {
    const RowBlock& block = row_blocks_[static_cast<size_t>(task / runs)];
    const RowTiles tiles = kernel.tiles(block.rows);
    const int64_t first = task % runs * run;
    product.multiply(block,
                     {.x = packed + block.packed,
                      .tiles = tiles,
                      .first_tile = 0,
                      .end_tile = tiles.count(),
                      .next = first_panel(task + pool_->size())},
                     first, std::min(run, product.panels - first), [&](int64_t panel, MatmulBlock part) {
                       kernel.multiply(rows_of(block), weight_of(block), panel, part);
                     });
  });
}

void CpuOps::grouped_matmul(ConstTensorView x, const Routing& routing, std::span<const Weight* const> weights,
                            TensorView out, ConstTensorView row_maxima) {
  contract::grouped_matmul(x, weights, out);
  require(out.shape[0] >= routing.rows(), "grouped_matmul: rows of every expert");
  const int64_t columns = weights[0]->rows;
  const auto multiply = [&](const RowBlock& rows, MatmulBlock block, int64_t first, int64_t count,
                            GroupedProduct::Panels panels) {
    block.width = std::min(columns - first * panel_width, count * panel_width);
    block.out = out.as<float>() + rows.first_row * columns + first * panel_width;
    block.out_stride = columns;
    panels(first, block);
  };
  multiply_grouped({x, nullptr, row_maxima, routing, weights, panels_of(columns), 1, multiply});
}

void CpuOps::grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x, const Routing& routing,
                                     std::span<const Weight* const> weights, ConstTensorView biases,
                                     TensorView out) {
  contract::grouped_matmul_gate_mul(x, routing, weights, biases, out);
  const int64_t width = out.shape[1], half = weights[0]->rows / 2;
  require(half % panel_width == 0 && out.shape[0] >= routing.rows(),
          "grouped_matmul_gate_mul: halves of whole panels, rows of every expert");
  const RowKernels& elementwise = path_.of(x.dtype).rows;
  const auto multiply = [&](const RowBlock& rows, MatmulBlock block, int64_t first, int64_t count,
                            GroupedProduct::Panels panels) {
    alignas(64) float sums[2][most_block_rows * panel_width];
    block.width = block.out_stride = panel_width;
    const Weight& weight = *weights[static_cast<size_t>(rows.expert)];
    const auto panel_at = [&](int64_t panel, int64_t up) {
      return units_of(weight) + (panel + up * half / panel_width) * panel_units(weight);
    };
    const uint32_t* const next_run = block.next;
    for (int64_t panel = first; panel < first + count; ++panel) {
      for (const int64_t up : {0, 1}) {
        block.next = up == 0                     ? panel_at(panel, 1)
                     : panel + 1 < first + count ? panel_at(panel + 1, 0)
                                                 : next_run;
        const int64_t part = panel + up * half / panel_width;
        block.bias =
            biases.empty() ? nullptr : biases.as<float>() + rows.expert * 2 * half + part * panel_width;
        block.out = sums[up];
        panels(part, block);
      }
      const int64_t column = panel * panel_width, columns = std::min<int64_t>(panel_width, width - column);
      for (int64_t row = 0; row < rows.rows; ++row)
        elementwise.gate_mul_floats(
            activation, sums[0] + row * panel_width, sums[1] + row * panel_width, columns,
            out.data + static_cast<size_t>((rows.first_row + row) * width + column) * size_of(out.dtype));
    }
  };
  multiply_grouped({x, routing.tokens.as<int32_t>(), {}, routing, weights, panels_of(width), 2, multiply});
}

int64_t CpuOps::route(ConstTensorView logits, const Router& router, Routing& routing) {
  contract::route(logits, router, routing);
  const int64_t tokens = logits.shape[0], experts = logits.shape[1];
  choices_.resize(static_cast<size_t>(tokens * router.per_token));
  router_rows_.resize(static_cast<size_t>(2 * tokens * experts));
  constexpr int64_t grain = 1 << 12;  // logits
  pool_->parallel_ranges(tokens, std::max<int64_t>(1, grain / experts), [&](IndexRange range) {
    for (int64_t token = range.begin; token < range.end; ++token) {
      const auto mine = std::span(choices_).subspan(static_cast<size_t>(token * router.per_token),
                                                    static_cast<size_t>(router.per_token));
      if (routing.is_padding(token)) {
        reference::choose_nobody(mine);
        continue;
      }
      const auto width = static_cast<size_t>(experts);
      float* const scratch = router_rows_.data() + 2 * token * experts;
      const reference::RouterRow row{{scratch, width}, {scratch + width, width}};
      reference::prepare_choice(router, logits.as<float>() + token * experts, row);
      path_.sampling.shares(row.powers.data(), experts, 1.0f, 0.0f, row.powers.data());
      reference::choose_experts(router, row, mine);
    }
  });
  return reference::order_by_expert(choices_, tokens, routing);
}

void CpuOps::combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
                     TensorView out) {
  contract::combine(rows, routing, biases, slices, out);
  constexpr int64_t grain = 1 << 14;  // elements
  const int64_t width = std::max<int64_t>(1, out.shape[1]);
  pool_->parallel_ranges(out.shape[0], std::max<int64_t>(1, grain / width), [&](IndexRange tokens) {
    reference::combine(rows, routing, biases, slices, tokens, out);
  });
}

void CpuOps::widen(ConstTensorView x, TensorView out) {
  contract::widen(x, out);
  require(x.dtype == DType::bf16, "widen: from bf16");
  constexpr int64_t grain = 1 << 15;  // elements
  pool_->parallel_ranges(x.shape.elements(), grain, [&](IndexRange range) {
    for (int64_t i = range.begin; i < range.end; ++i)
      out.as<float>()[i] = static_cast<float>(x.as<BFloat16>()[i]);
  });
}

}  // namespace maniple::cpu
