// Operations and a communicator that compute nothing. A forward pass over them and a measuring Workspace
// gives the scratch memory of a step, and announces its products and its attention to the real operations
// (Ops::prepare_matmul, prepare_attention).
#pragma once

#include <kernels/ops.hpp>
#include <parallel/communicator.hpp>
#include <parallel/rank_plan.hpp>

namespace maniple {

class DryOps final : public Ops {
 public:
  explicit DryOps(Ops& real) : real_(real) {}
  Device& device() override { return real_.device(); }
  Weight make_weight(const WeightShape&) override { return {}; }
  void pack(Weight&, int64_t, const RawRows&) override {}
  void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
              ConstTensorView) override {
    real_.prepare_matmul(x, weight, bias, out);
  }
  void row_abs_maxima(ConstTensorView, TensorView) override {}
  void gather_columns(ConstTensorView, ConstTensorView, TensorView) override {}
  void embed(ConstTensorView, const Weight&, IndexRange, TensorView) override {}
  void rms_norm(ConstTensorView, ConstTensorView, float, TensorView) override {}
  void add_rms_norm(ConstTensorView, TensorView, ConstTensorView, float, TensorView) override {}
  void add_residual(ConstTensorView, TensorView) override {}
  void gate_mul(GateActivation, ConstTensorView, TensorView) override {}
  void add(ConstTensorView, ConstTensorView, TensorView) override {}
  void add_bias(TensorView, ConstTensorView) override {}
  void add_gated(ConstTensorView, ConstTensorView, TensorView) override {}
  void gather_rows(ConstTensorView, ConstTensorView, TensorView) override {}
  int64_t route(ConstTensorView, const Router&, Routing& routing) override { return routing.tokens.shape[0]; }
  void grouped_matmul_gate_mul(GateActivation, ConstTensorView, const Routing&,
                               std::span<const Weight* const>, ConstTensorView, TensorView) override {}
  void grouped_matmul(ConstTensorView, const Routing&, std::span<const Weight* const>, TensorView,
                      ConstTensorView) override {}
  void combine(ConstTensorView, const Routing&, ConstTensorView, int64_t, TensorView) override {}
  void widen(ConstTensorView, TensorView) override {}
  void scatter(ConstTensorView, ConstTensorView, TensorView) override {}
  void resolve_last_tokens(ConstTensorView, TensorView, ConstTensorView, TensorView) override {}
  void adjust_logits(TensorView, IndexRange, std::span<const AdjustedRow>, const SequenceTables&) override {}
  void raw_logits(ConstTensorView, ConstTensorView, IndexRange, std::span<Candidate>) override {}
  void logits_of(ConstTensorView, ConstTensorView, IndexRange, std::span<float>) override {}
  void head_squares(ConstTensorView, const HeadLayout&, TensorView) override {}
  void rotary_store(ConstTensorView, const HeadLayout&, const HeadNorms&, ConstTensorView,
                    const AttentionBatch&, TensorView, const KvPages&) override {}
  void merge_partials(ConstTensorView, ConstTensorView, TensorView) override {}
  void matmul_heads(ConstTensorView, std::span<const Weight* const>, TensorView) override {}
  void latent_store(ConstTensorView, const LatentNorm&, ConstTensorView, const AttentionBatch&,
                    const KvPages&) override {}
  void latent_queries(ConstTensorView, const HeadLayout&, ConstTensorView, const AttentionBatch&,
                      TensorView) override {}
  void candidates(ConstTensorView, IndexRange, ConstTensorView, std::span<CandidateList>) override {}
  void filter_candidates(std::span<const CandidateList>, ConstTensorView, IndexRange, ConstTensorView,
                         std::span<const SamplingRow>, std::span<Cut>) override {}
  void filter_logits(ConstTensorView, int64_t, ConstTensorView, std::span<const SamplingRow>,
                     std::span<Cut>) override {}
  void best_candidates(ConstTensorView, IndexRange, std::span<const SamplingRow>, std::span<const Cut>,
                       std::span<Candidate>) override {}
  void choose(std::span<const Candidate>, ConstTensorView, std::span<Candidate>, TensorView) override {}
  void row_maxima(ConstTensorView, IndexRange, std::span<float>) override {}
  void exp_sums(ConstTensorView, IndexRange, std::span<const float>, int, std::span<float>) override {}
  void largest_logits(ConstTensorView, IndexRange, int64_t, std::span<TokenLogit>) override {}

 private:
  void attend(const AttentionCall& call) override { real_.prepare_attention(call); }

  Ops& real_;
};

class DryCommunicator final : public Communicator {
 public:
  explicit DryCommunicator(TensorRank place) : place_(place) {}
  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  bool captures() const override { return true; }
  void all_reduce(TensorView) override {}
  void all_gatherv(ConstTensorView, TensorView, std::span<const int64_t>) override {}
  void reduce_scatterv(ConstTensorView, TensorView, std::span<const int64_t>) override {}
  void all_to_all(ConstTensorView, TensorView) override {}
  void broadcast(TensorView, int) override {}
  void send(ConstTensorView, int) override {}
  void receive(TensorView, int) override {}

 private:
  TensorRank place_;
};

}  // namespace maniple
