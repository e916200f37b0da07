// The operations that every backend has, for the inside of its class: overrides of Ops (kernels/ops.hpp, with their contracts).
Weight make_weight(const WeightShape& shape) override;
void pack(Weight& weight, int64_t first_row, const RawRows& raw) override;

void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
            ConstTensorView row_maxima = {}) override;
void row_abs_maxima(ConstTensorView x, TensorView out) override;
void gather_columns(ConstTensorView x, ConstTensorView order, TensorView out) override;
void embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) override;

void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) override;
void add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                  TensorView out) override;
void add_residual(ConstTensorView delta, TensorView residual) override;
void gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) override;
void add(ConstTensorView a, ConstTensorView b, TensorView out) override;
void add_bias(TensorView x, ConstTensorView bias) override;
void add_gated(ConstTensorView x, ConstTensorView gate, TensorView sum) override;
void gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) override;

int64_t route(ConstTensorView logits, const Router& router, Routing& routing) override;
void grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x, const Routing& routing,
                             std::span<const Weight* const> weights, ConstTensorView biases,
                             TensorView out) override;
void grouped_matmul(ConstTensorView x, const Routing& routing, std::span<const Weight* const> weights,
                    TensorView out, ConstTensorView row_maxima = {}) override;
void combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
             TensorView out) override;
void widen(ConstTensorView x, TensorView out) override;

void head_squares(ConstTensorView qkv, const HeadLayout& heads, TensorView out) override;
void rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                  ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                  const KvPages& pages) override;
void merge_partials(ConstTensorView partials, ConstTensorView sinks, TensorView out) override;

void matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, TensorView out) override;
void latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                  const AttentionBatch& batch, const KvPages& pages) override;
void latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                    const AttentionBatch& batch, TensorView queries) override;

void candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                std::span<CandidateList> lists) override;
void filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits, IndexRange vocabulary,
                       ConstTensorView listed, std::span<const SamplingRow> rows,
                       std::span<Cut> cuts) override;
void filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                   std::span<const SamplingRow> rows, std::span<Cut> cuts) override;
void best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                     std::span<const Cut> cuts, std::span<Candidate> out) override;
void row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) override;
void exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima, int chunks,
              std::span<float> sums) override;
void largest_logits(ConstTensorView logits, IndexRange vocabulary, int64_t row,
                    std::span<TokenLogit> out) override;
