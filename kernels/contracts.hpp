// What Ops asks of shapes and types, once for all backends: an operation checks its call by the function of its name; add_rms_norm by
// those of its two halves, logits of a shard by shard(). Tables by seat have no function. A backend that computes less asks for more
// itself. A call that breaks a contract is a bug of the caller (require).
#pragma once

#include <kernels/ops.hpp>

#include <utility>

namespace maniple::contract {

inline bool is_activation(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32;
}
inline bool is_fp32(ConstTensorView view, const Shape& shape) {
  return view.dtype == DType::fp32 && view.shape == shape;
}
inline bool is_absent_or_fp32(ConstTensorView view, const Shape& shape) {
  return view.empty() || is_fp32(view, shape);
}
// What is summed in fp32 has the activation type or stays fp32.
inline bool are_sums_of(ConstTensorView x, ConstTensorView sums) {
  return is_activation(x.dtype) && (sums.dtype == x.dtype || sums.dtype == DType::fp32);
}

inline void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, ConstTensorView out) {
  require(x.shape == Shape{out.shape[0], weight.columns} && out.shape == Shape{x.shape[0], weight.rows} &&
              x.dtype == weight.dtype && are_sums_of(x, out) && is_absent_or_fp32(bias, {weight.rows}),
          "matmul: shapes and types agree");
}
inline void matmul_gate_mul(ConstTensorView x, const Weight& gate_up, ConstTensorView bias,
                            ConstTensorView out) {
  require(x.shape == Shape{out.shape[0], gate_up.columns} && gate_up.rows == 2 * out.shape[1] &&
              x.dtype == gate_up.dtype && out.dtype == x.dtype && is_absent_or_fp32(bias, {gate_up.rows}),
          "matmul_gate_mul: shapes and types agree");
}
inline void matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, ConstTensorView out) {
  const auto heads = static_cast<int64_t>(weights.size());
  require(heads > 0 && x.shape[0] == out.shape[0] && x.shape[1] % heads == 0 && out.shape[1] % heads == 0 &&
              are_sums_of(x, out),
          "matmul_heads: equal parts of x and out");
  for (const Weight* weight : weights)
    require(weight->format == WeightFormat::dense && weight->slices == 1 && weight->dtype == x.dtype &&
                weight->rows == weights[0]->rows && weight->columns == weights[0]->columns &&
                weight->columns <= x.shape[1] / heads && weight->rows <= out.shape[1] / heads,
            "matmul_heads: dense weights of one shape");
}
inline void embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, ConstTensorView out) {
  require(ids.dtype == DType::int32 && out.dtype == table.dtype &&
              out.shape == Shape{ids.shape[0], table.columns} && vocabulary.size() <= table.rows,
          "embed: shapes and types agree");
}

inline void row_abs_maxima(ConstTensorView x, ConstTensorView out) {
  require(is_activation(x.dtype) && is_fp32(out, {x.shape[0]}), "row_abs_maxima: a maximum for each row");
}
inline void gather_columns(ConstTensorView x, ConstTensorView order, ConstTensorView out) {
  require(x.shape.rank() == 3 && out.shape == Shape{x.shape[1], order.shape[0]} && out.dtype == x.dtype &&
              order.dtype == DType::int32,
          "gather_columns: shapes and types agree");
}

inline void rms_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView out) {
  require(x.shape.rank() == 2 && out.shape == x.shape && out.dtype == x.dtype && is_activation(x.dtype) &&
              is_fp32(weight, {x.shape[1]}),
          "rms_norm: shapes and types agree");
}
inline void add_residual(ConstTensorView delta, ConstTensorView residual) {
  require(delta.shape == residual.shape && are_sums_of(residual, delta),
          "add_residual: shapes and types agree");
}
inline void gate_mul(ConstTensorView gate_up, ConstTensorView out) {
  require(gate_up.shape == Shape{out.shape[0], 2 * out.shape[1]} && gate_up.dtype == out.dtype &&
              is_activation(out.dtype),
          "gate_mul: gate and up stand side by side");
}
inline void add(ConstTensorView a, ConstTensorView b, ConstTensorView out) {
  require(a.shape == out.shape && b.shape == out.shape && a.dtype == out.dtype && b.dtype == out.dtype &&
              is_activation(out.dtype),
          "add: shapes and types agree");
}
inline void add_bias(ConstTensorView x, ConstTensorView bias) {
  require(is_activation(x.dtype) && is_fp32(bias, {x.shape[1]}), "add_bias: an fp32 value for each column");
}
inline void add_gated(ConstTensorView x, ConstTensorView gate, ConstTensorView sum) {
  require(is_fp32(x, sum.shape) && is_fp32(sum, x.shape) && is_fp32(gate, {x.shape[0], 1}),
          "add_gated: shapes and types agree");
}
inline void gather_rows(ConstTensorView x, ConstTensorView rows, ConstTensorView out) {
  require(out.dtype == x.dtype && rows.dtype == DType::int32 && out.shape[0] == rows.shape[0] &&
              out.shape.row_elements() == x.shape.row_elements(),
          "gather_rows: shapes and types agree");
}

inline void router(const Router& router, const Routing& routing) {
  require(router.suits(routing.counts.shape[0]) &&
              routing.chosen.shape[1] == Routing::experts_a_token(router, routing.experts),
          "a router of so many experts");
}
inline void route(ConstTensorView logits, const Router& router, const Routing& routing) {
  contract::router(router, routing);
  require(is_fp32(logits, {routing.chosen.shape[0], routing.counts.shape[0]}),
          "route: logits of all experts");
}
inline void matmul_route(ConstTensorView x, const Weight& gate, const Router& router,
                         const Routing& routing) {
  contract::router(router, routing);
  require(x.shape == Shape{routing.chosen.shape[0], gate.columns} && gate.dtype == DType::fp32 &&
              gate.rows == routing.counts.shape[0],
          "matmul_route: an fp32 gate of all experts");
}
inline void grouped_matmul_gate_mul(ConstTensorView x, const Routing& routing,
                                    std::span<const Weight* const> weights, ConstTensorView biases,
                                    ConstTensorView out) {
  require(x.shape[1] == weights[0]->columns && 2 * out.shape[1] <= weights[0]->rows && out.dtype == x.dtype &&
              x.dtype == weights[0]->dtype &&
              is_absent_or_fp32(biases, {routing.experts.size(), weights[0]->rows}),
          "grouped_matmul_gate_mul: shapes and types agree");
}
inline void grouped_matmul(ConstTensorView x, std::span<const Weight* const> weights, ConstTensorView out) {
  require(x.shape == Shape{out.shape[0], weights[0]->columns} && out.dtype == DType::fp32 &&
              out.shape[1] == weights[0]->rows && x.dtype == weights[0]->dtype,
          "grouped_matmul: shapes and types agree");
}
inline void combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
                    ConstTensorView out) {
  require(is_fp32(rows, {rows.shape[0], out.shape[1]}) && routing.experts.size() % slices == 0 &&
              is_fp32(out, {routing.chosen.shape[0], rows.shape[1]}) &&
              is_absent_or_fp32(biases, {routing.experts.size(), rows.shape[1]}),
          "combine: shapes and types agree");
}
inline void widen(ConstTensorView x, ConstTensorView out) {
  require(is_activation(x.dtype) && is_fp32(out, x.shape), "widen: to fp32");
}

inline void head_squares(ConstTensorView qkv, const HeadLayout& heads, ConstTensorView out) {
  require(qkv.shape == Shape{out.shape[0], heads.qkv_width()} &&
              is_fp32(out, {qkv.shape[0], heads.query_heads + heads.kv_heads}),
          "head_squares: shapes and types agree");
}
inline void rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                         ConstTensorView cos_sin, const AttentionBatch& batch, ConstTensorView queries,
                         const KvPages& pages) {
  const bool whole = !norms.squares.empty();
  require(qkv.shape == Shape{batch.tokens(), heads.qkv_width()} && queries.dtype == qkv.dtype &&
              queries.shape == Shape{batch.tokens(), heads.query_width()} && is_activation(qkv.dtype),
          "rotary_store: qkv and queries agree");
  require(cos_sin.shape[1] % 16 == 0 && cos_sin.shape[1] <= heads.key_dim &&
              is_absent_or_fp32(norms.query, {whole ? heads.query_width() : heads.key_dim}) &&
              is_absent_or_fp32(norms.key, {whole ? heads.kv_width() : heads.key_dim}),
          "rotary_store: angles and norms of such heads");
  require(pages.layout.holds(heads, qkv.dtype) && heads.value_dim == heads.key_dim && !pages.layout.shared,
          "rotary_store: the cache has such heads");
}
inline void attention(const AttentionCall& call) {
  require(call.consistent() && is_activation(call.queries.dtype),
          "attention: queries, output and pages agree");
}
inline void merge_partials(ConstTensorView partials, ConstTensorView sinks, ConstTensorView out) {
  require(partials.dtype == DType::fp32 && is_activation(out.dtype) &&
              out.shape == Shape{partials.shape[1], partials.shape[2] * (partials.shape[3] - 2)} &&
              is_absent_or_fp32(sinks, {partials.shape[2]}),
          "merge_partials: shapes and types agree");
}
inline void latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                         const AttentionBatch& batch, const KvPages& pages) {
  const KvLayout& layout = pages.layout;
  require(
      layout.shared && layout.dtype == rows.dtype && rows.shape == Shape{batch.tokens(), layout.key_dim} &&
          is_fp32(norm.weight, {layout.value_dim}) && cos_sin.shape[1] <= layout.key_dim - layout.value_dim,
      "latent_store: rows, norm, angles and cache agree");
}
inline void latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                           const AttentionBatch& batch, ConstTensorView queries) {
  const int64_t rotated = heads.key_dim - heads.value_dim;
  require(queries.shape == Shape{batch.tokens(), heads.query_width()} && queries.dtype == x.dtype &&
              x.shape[0] == batch.tokens() && x.shape[1] % heads.query_heads == 0 &&
              x.shape[1] / heads.query_heads >= rotated && cos_sin.shape[1] <= rotated,
          "latent_queries: x, angles and queries agree");
}

inline void shard(ConstTensorView logits, IndexRange vocabulary, int64_t rows) {
  require(is_fp32(logits, {rows, logits.shape[1]}) && vocabulary.size() <= logits.shape[1],
          "fp32 logits of a shard in so many rows");
}
inline void candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                       std::span<const CandidateList> lists) {
  shard(logits, vocabulary, logits.shape[0]);
  require(listed.shape == Shape{static_cast<int64_t>(lists.size())}, "candidates: a list for each row");
}
inline void filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits,
                              IndexRange vocabulary, ConstTensorView listed,
                              std::span<const SamplingRow> rows, std::span<const Cut> cuts) {
  const auto count = static_cast<size_t>(listed.shape[0]);
  shard(logits, vocabulary, std::ssize(rows));
  require(count > 0 && !lists.empty() && lists.size() % count == 0 && cuts.size() == rows.size(),
          "filter_candidates: lists of every shard for each row, and its cut");
}
inline void filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                          std::span<const SamplingRow> rows, std::span<const Cut> cuts) {
  require(gathered.dtype == DType::fp32 && 0 < vocabulary_size && cuts.size() == rows.size() &&
              vocabulary_size <= gathered.shape[0] * gathered.shape[2] &&
              gathered.shape[1] >= listed.shape[0],
          "filter_logits: whole logits of all rows or of the listed ones, and a cut for each row");
}
inline void best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                            std::span<const Candidate> out) {
  shard(logits, vocabulary, std::ssize(rows));
  require(out.size() == rows.size(), "best_candidates: one for each row");
}
inline void choose(std::span<const Candidate> gathered, ConstTensorView seats,
                   std::span<const Candidate> out) {
  require(!out.empty() && !gathered.empty() && gathered.size() % out.size() == 0 &&
              seats.shape == Shape{static_cast<int64_t>(out.size())},
          "choose: candidates of every shard for each row, and its seat");
}
inline void exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima, int chunks,
                     std::span<const float> sums) {
  const auto rows = static_cast<size_t>(logits.shape[0]);
  shard(logits, vocabulary, logits.shape[0]);
  require(logits.shape[1] % chunks == 0 && sums.size() == rows * static_cast<size_t>(chunks) &&
              maxima.size() % rows == 0,
          "exp_sums: a padded vocabulary divides by its chunks");
}
inline void largest_logits(ConstTensorView logits, IndexRange vocabulary, int64_t row,
                           std::span<const TokenLogit> out) {
  shard(logits, vocabulary, logits.shape[0]);
  require(std::cmp_less_equal(out.size(), vocabulary.size()) && row < logits.shape[0],
          "largest_logits: as many as there are");
}

}  // namespace maniple::contract
