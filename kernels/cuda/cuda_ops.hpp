// The CUDA backend: checks shapes and calls the kernels or the library. The tests also compile it over their
// emulation, so it uses the device only through its interface and its stream.
#pragma once

#include <kernels/cuda/attention_decode.hpp>
#include <kernels/cuda/gemm.hpp>
#include <kernels/ops.hpp>

#include <map>
#include <memory>
#include <vector>

namespace maniple::cuda {

class CudaOps : public Ops {
 public:
  CudaOps(Device& device, device::Stream stream, std::unique_ptr<Gemm> gemm);
  Device& device() override { return device_; }

  // Packed weights are plain row major, of any type. Slices have no effect.
  Weight make_weight(const WeightShape& shape) override;
  void pack(Weight& weight, int64_t first_row, const RawRows& raw) override;

  void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
              ConstTensorView row_maxima = {}) override;
  void prepare_matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out) override;
  bool matmul_gate_mul(GateActivation activation, ConstTensorView x, const Weight& weight,
                       ConstTensorView bias, TensorView out) override;
  void embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) override;

  void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) override;
  void add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                    TensorView out) override;
  void add_residual(ConstTensorView delta, TensorView residual) override;
  void gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) override;
  void add(ConstTensorView a, ConstTensorView b, TensorView out) override;
  void add_bias(TensorView x, ConstTensorView bias) override;
  // Row numbers outside of x give zeros: they are on the device, where no error is thrown.
  void gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) override;

  int64_t route(ConstTensorView logits, const Router& router, Routing& routing) override;
  void grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x, const Routing& routing,
                               std::span<const Weight* const> weights, TensorView out) override;
  void grouped_matmul(ConstTensorView x, const Routing& routing, std::span<const Weight* const> weights,
                      TensorView out, ConstTensorView row_maxima = {}) override;
  void combine(ConstTensorView rows, const Routing& routing, int64_t slices, TensorView out) override;
  void widen(ConstTensorView x, TensorView out) override;

  void scatter(ConstTensorView indices, ConstTensorView values, TensorView out) override;
  void resolve_last_tokens(ConstTensorView last_tokens, TensorView ids) override;

  void rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                    ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                    const KvPages& pages) override;
  void merge_partials(ConstTensorView partials, TensorView out) override;
  std::string attention_path(DType dtype, int64_t head_dim) const override {
    return attention_on_tensor_cores(dtype, head_dim) ? "tensor cores" : "plain cores";
  }

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

  bool multiply_few_rows(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                         bool gated);
  // x_rows: the row of x for each row of out; null: the same.
  void multiply_grouped(ConstTensorView x, const int32_t* x_rows, const Routing& routing,
                        std::span<const Weight* const> weights, TensorView out, bool gated);
  // The weights' addresses in the device's memory.
  const void* const* addresses_of(std::span<const Weight* const> weights);
  ConstTensorView rounded_bias(ConstTensorView bias, DType dtype);
  DecodeWorkspace decode_workspace(const AttentionArguments& arguments);

  Device& device_;
  device::Stream stream_;
  std::unique_ptr<Gemm> gemm_;
  // These never grow: captured graphs hold their addresses.
  Tensor bias_;
  Tensor partial_candidates_;
  Tensor decode_slots_;
  Tensor decode_arrivals_;
  Tensor skinny_partials_;
  Tensor skinny_arrivals_;
  std::map<std::vector<const std::byte*>, Tensor> weight_addresses_;  // of the experts of each layer
};

}  // namespace maniple::cuda
