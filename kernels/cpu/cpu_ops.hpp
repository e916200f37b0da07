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
  std::vector<int32_t> ids;
};

class CpuOps : public HostOps {
 public:
  // path: one that this processor has, not automatic.
  CpuOps(Device& device, std::unique_ptr<ThreadPool> pool, CpuPath path)
      : HostOps(device),
        pool_(std::move(pool)),
        path_(kernels_of(path)),
        filter_scratch_(static_cast<size_t>(pool_->size())) {}

  Weight make_weight(const WeightShape& shape) override;
  void pack(Weight& weight, int64_t first_row, const RawRows& raw) override;

  void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
              ConstTensorView row_maxima = {}) override;
  bool matmul_gate_mul(GateActivation activation, ConstTensorView x, const Weight& gate_up,
                       ConstTensorView bias, TensorView out) override;
  void row_abs_maxima(ConstTensorView x, TensorView out) override;
  void gather_columns(ConstTensorView x, ConstTensorView order, TensorView out) override;
  void embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) override;

  void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) override;
  void add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                    TensorView out) override;
  void add_residual(ConstTensorView delta, TensorView residual) override;
  void gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) override;
  void add(ConstTensorView a, ConstTensorView b, TensorView out) override;
  void add_tree(std::span<const ConstTensorView> parts, TensorView out, TensorView copy) override;
  void add_bias(TensorView x, ConstTensorView bias) override;
  void gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) override;

  int64_t route(ConstTensorView logits, const Router& router, Routing& routing) override;
  void grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x, const Routing& routing,
                               std::span<const Weight* const> weights, TensorView out) override;
  void grouped_matmul(ConstTensorView x, const Routing& routing, std::span<const Weight* const> weights,
                      TensorView out, ConstTensorView row_maxima = {}) override;
  void combine(ConstTensorView rows, const Routing& routing, int64_t slices, TensorView out) override;
  void widen(ConstTensorView x, TensorView out) override;

  void rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                    ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                    const KvPages& pages) override;
  void merge_partials(ConstTensorView partials, TensorView out) override;

  void best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                       std::span<Candidate> out) override;
  void row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) override;
  void exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima, int chunks,
                std::span<float> sums) override;
  void sample_filtered(ConstTensorView gathered, int64_t vocabulary_size, std::span<const SamplingRow> rows,
                       std::span<Candidate> out) override;
  void largest_logits(ConstTensorView gathered, int64_t vocabulary_size, int64_t row,
                      std::span<TokenLogit> out) override;

 private:
  void attend(const AttentionCall& call) override;

  struct GroupedProduct;
  struct RowBlock {  // rows of one expert whose activations fit a cache, and columns of its product
    int64_t expert = 0, first_row = 0, rows = 0;
    int64_t packed = 0;  // where its activations begin
  };
  void multiply_grouped(const GroupedProduct& product);

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
  std::vector<RowBlock> row_blocks_;  // of one grouped product
  std::vector<reference::Choice> choices_;
  std::vector<float> shares_;
  std::vector<FilterScratch> filter_scratch_;  // one per thread
};

}  // namespace maniple::cpu
