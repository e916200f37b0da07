#include <kernels/cpu/attention.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/elementwise.hpp>
#include <kernels/cpu/matmul.hpp>
#include <kernels/reference/seats.hpp>

namespace maniple {

Weight CpuOps::make_weight(DType dtype, int64_t rows, int64_t columns, int slices) {
  return cpu::make_weight(device_, path_, dtype, rows, columns, slices);
}

void CpuOps::pack(Weight& weight, int64_t first_row, ConstTensorView raw) {
  cpu::pack(path_, weight, first_row, raw);
}

void CpuOps::matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out) {
  cpu::matmul(*pool_, path_, x, weight, bias, out, matmul_scratch_);
}

void CpuOps::embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) {
  cpu::embed(*pool_, path_, ids, table, vocabulary, out);
}

void CpuOps::rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) {
  cpu::rms_norm(*pool_, path_, x, weight, epsilon, out);
}

void CpuOps::add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                          TensorView out) {
  cpu::add_rms_norm(*pool_, path_, delta, residual, weight, epsilon, out);
}

void CpuOps::gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) {
  switch (activation) {
    case GateActivation::silu:
      return cpu::silu_mul(*pool_, path_, gate_up, out);
  }
}

void CpuOps::add(ConstTensorView a, ConstTensorView b, TensorView out) { cpu::add(*pool_, path_, a, b, out); }

void CpuOps::add_bias(TensorView x, ConstTensorView bias) { cpu::add_bias(*pool_, path_, x, bias); }

void CpuOps::gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) {
  cpu::gather_rows(*pool_, x, rows, out);
}

void CpuOps::scatter(ConstTensorView indices, ConstTensorView values, TensorView out) {
  reference::scatter(indices, values, out);
}

void CpuOps::resolve_last_tokens(ConstTensorView last_tokens, TensorView ids) {
  reference::resolve_last_tokens(last_tokens, ids);
}

void CpuOps::rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                          ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                          const KvPages& pages) {
  cpu::rotary_store(*pool_, path_, qkv, heads, norms, cos_sin, batch, queries, pages);
}

void CpuOps::attend(const AttentionCall& call) { cpu::attention(*pool_, path_, call); }

void CpuOps::best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                             std::span<Candidate> out) {
  cpu::best_candidates(*pool_, path_.sampling, logits, vocabulary, rows, out);
}

void CpuOps::choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
                    TensorView last_tokens) {
  reference::choose(gathered, seats, out, last_tokens);
}

void CpuOps::row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) {
  cpu::row_maxima(*pool_, path_.sampling, logits, vocabulary, maxima);
}

void CpuOps::exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima,
                      int chunks, std::span<float> sums) {
  cpu::exp_sums(*pool_, path_.sampling, logits, vocabulary, maxima, chunks, sums);
}

void CpuOps::sample_filtered(ConstTensorView gathered, int64_t vocabulary_size,
                             std::span<const SamplingRow> rows, std::span<Candidate> out) {
  cpu::sample_filtered(*pool_, path_.sampling, gathered, vocabulary_size, rows, out, filter_scratch_);
}

void CpuOps::largest_logits(ConstTensorView gathered, int64_t vocabulary_size, int64_t row,
                            std::span<TokenLogit> out) {
  cpu::largest_logits(gathered, vocabulary_size, row, out);
}

}  // namespace maniple
