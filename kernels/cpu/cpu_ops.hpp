// The CPU backend: each operation forwards to the kernels of one instruction path, over the threads of this
// rank.
#pragma once

#include <kernels/cpu/matmul.hpp>
#include <kernels/cpu/sampling.hpp>
#include <kernels/cpu/thread_pool.hpp>
#include <kernels/ops.hpp>

#include <vector>

namespace maniple {

class CpuOps : public Ops {
 public:
  // path: one that this processor has, not automatic.
  CpuOps(Device& device, std::unique_ptr<ThreadPool> pool, CpuPath path)
      : device_(device),
        pool_(std::move(pool)),
        path_(cpu::kernels_of(path)),
        matmul_scratch_(device),
        filter_scratch_(static_cast<size_t>(pool_->size())) {}
  Device& device() override { return device_; }

  Weight make_weight(DType dtype, int64_t rows, int64_t columns, int slices) override;
  void pack(Weight& weight, int64_t first_row, ConstTensorView raw) override;

  void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out) override;
  void embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) override;

  void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) override;
  void add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                    TensorView out) override;
  void gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) override;
  void add(ConstTensorView a, ConstTensorView b, TensorView out) override;
  void add_bias(TensorView x, ConstTensorView bias) override;
  void gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) override;

  void scatter(ConstTensorView indices, ConstTensorView values, TensorView out) override;
  void resolve_last_tokens(ConstTensorView last_tokens, TensorView ids) override;

  void rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                    ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                    const KvPages& pages) override;

  void best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                       std::span<Candidate> out) override;
  void choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
              TensorView last_tokens) override;
  void row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) override;
  void exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima, int chunks,
                std::span<float> sums) override;
  void sample_filtered(ConstTensorView gathered, int64_t vocabulary_size, std::span<const SamplingRow> rows,
                       std::span<Candidate> out) override;
  void largest_logits(ConstTensorView gathered, int64_t vocabulary_size, int64_t row,
                      std::span<TokenLogit> out) override;

 private:
  void attend(const AttentionCall& call) override;

  Device& device_;
  std::unique_ptr<ThreadPool> pool_;
  cpu::PathKernels path_;
  cpu::MatmulScratch matmul_scratch_;
  std::vector<cpu::FilterScratch> filter_scratch_;
};

}  // namespace maniple
