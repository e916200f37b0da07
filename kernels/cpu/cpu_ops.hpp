// The CPU backend: each operation divides its work over the threads of
// this rank and runs the kernels of one instruction path on the parts.
#pragma once

#include <kernels/cpu/panel_product.hpp>
#include <kernels/cpu/thread_pool.hpp>
#include <kernels/reference/host_ops.hpp>
#include <kernels/reference/routing.hpp>

#include <vector>

namespace maniple::cpu {

// Working memory of one thread while it filters a row; grows to the vocabulary once.
struct FilterScratch {
  std::vector<TokenLogit> entries;
  std::vector<float> numbers;
  std::vector<int32_t> places;
  std::vector<int64_t> sums;
};

class CpuOps : public HostOps {
 public:
  // path: one that this processor has, not automatic.
  CpuOps(Device& device, std::unique_ptr<ThreadPool> pool, CpuPath path)
      : HostOps(device),
        pool_(std::move(pool)),
        path_(kernels_of(path)),
        filter_scratch_(static_cast<size_t>(pool_->size())) {}

#include <kernels/ops_of_backend.inl>

  bool matmul_gate_mul(GateActivation activation, ConstTensorView x, const Weight& gate_up,
                       ConstTensorView bias, TensorView out) override;

  void add_tree(std::span<const ConstTensorView> parts, TensorView out, TensorView copy) override;
  void adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                     const SequenceTables& tables) override;

 private:
  void attend(const AttentionCall& call) override;

  struct GroupedProduct;
  struct RowBlock {  // rows of one expert whose activations fit a cache, and columns of its product
    int64_t expert = 0, first_row = 0, rows = 0;
    int64_t packed = 0;  // where its activations begin
  };
  void multiply_grouped(const GroupedProduct& product);

  void for_rows(size_t count, FunctionRef<void(size_t, FilterScratch&)> f);

  // Weights of codes (codes.cpp).
  Weight make_codes(const WeightShape& shape);
  void pack_codes(Weight& weight, int64_t first_row, const RawRows& raw);
  void read_code_row(const Weight& table, int64_t row, std::byte* out) const;

  // Memory for the rows of one product.
  RoundedRows rounded_rows(const PanelProduct& product, const WeightShape& shape, int64_t rows);
  // Packs all rows of a product into that memory.
  uint32_t* pack_rows(const PanelProduct& product, const ProductRows& rows, const Weight& weight,
                      const RowTiles& tiles);
  // Packed activations of one product at a time. Grows to the largest product.
  uint32_t* matmul_scratch(int64_t units);

  std::unique_ptr<ThreadPool> pool_;
  PathKernels path_;
  Tensor matmul_scratch_;
  struct {
    std::vector<std::byte> values;
    std::vector<float> scales;
    std::vector<int32_t> sums;
  } rounded_;
  std::vector<int32_t> head_rows_;    // of one product by heads
  std::vector<RowBlock> row_blocks_;  // of one grouped product
  std::vector<reference::Choice> choices_;
  std::vector<float> router_rows_;
  std::vector<FilterScratch> filter_scratch_;  // one per thread
};

}  // namespace maniple::cpu
