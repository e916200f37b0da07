// The operations of a transformer on one device. Everything above this interface is written once for all
// backends.
//
// Numbers: activations are bf16, fp32 or (not on the CPU backend) fp16. "The activation
// type" is that of the tensors passed. Accumulation is fp32. On the CPU backends a result
// depends on its own inputs alone: the bits of a row are the same for any number of rows,
// threads, block size or chunking. On a GPU results agree within bounds. Norm weights and
// biases are fp32 tensors. A call that breaks a contract
// (kernels/contracts.hpp) is a bug of the caller.
#pragma once

#include <kernels/attention_batch.hpp>
#include <kernels/gate_activation.hpp>
#include <kernels/logit_adjustments.hpp>
#include <kernels/routing.hpp>
#include <kernels/sampling_batch.hpp>
#include <kernels/tensor/device.hpp>
#include <kernels/weight.hpp>

#include <cmath>
#include <optional>
#include <span>

namespace maniple {

// RMSNorm of query and key heads before rotation, absent where the views are empty: of each head (Qwen3), or, with squares, of all
// query heads of the model and of all its key heads (MiniMax-M2).
struct HeadNorms {
  ConstTensorView query;  // fp32 [head_dim]; with squares [query heads of the rank x head_dim]
  ConstTensorView key;    // fp32, likewise
  float epsilon = 0;
  int64_t size = 0;  // lanes of a head in the mean, where the others are zero padding; 0: all
  // fp32 [tokens, heads]: head_squares of the model's query heads, then its key heads; added by ascending head.
  ConstTensorView squares = {};
  int64_t query_heads = 0;  // of the model

  // On the host: what a token's query or key heads are multiplied with.
  float inverse(int64_t token, bool is_query, int64_t head_dim) const {
    const int64_t heads = squares.shape[1], begin = is_query ? 0 : query_heads,
                  end = is_query ? query_heads : heads;
    float sum = 0;
    for (int64_t head = begin; head < end; ++head) sum += squares.as<float>()[token * heads + head];
    return 1.0F / std::sqrt(sum / static_cast<float>((end - begin) * (size > 0 ? size : head_dim)) + epsilon);
  }
};

// RMSNorm of the part of a latent row that is compressed.
struct LatentNorm {
  ConstTensorView weight;  // fp32 [value_dim]
  float epsilon = 0;
  int64_t size = 0;  // as in HeadNorms
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual Device& device() = 0;

  // --- weights ---
  // An all-zero weight. columns must divide by slices. Throws Error (input) for a format that the backend does not compute.
  virtual Weight make_weight(const WeightShape& shape) = 0;
  // Packs n rows from first_row on. Called in any order, each row once.
  virtual void pack(Weight& weight, int64_t first_row, const RawRows& raw) = 0;

  // --- dense ---
  // out[m, n] = x[m, k] * weight[n, k]^T + bias[n]. out is fp32 or x's type; bias is fp32 or empty. row_maxima: where the
  // weight rounds activations per token, fp32 [ranks, m], the largest of row_abs_maxima counts; empty: that of x alone.
  virtual void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                      ConstTensorView row_maxima = {}) = 0;
  // Called at start-up: announces such products, with up to
  // this number of rows of x. x and out may be without memory.
  virtual void prepare_matmul(ConstTensorView /*x*/, const Weight& /*weight*/, ConstTensorView /*bias*/,
                              TensorView /*out*/) {}
  // matmul and gate_mul in one, not rounded in between. Returns false and
  // does nothing where the backend has no such kernel for these sizes.
  virtual bool matmul_gate_mul(GateActivation /*activation*/, ConstTensorView /*x*/,
                               const Weight& /*gate_up*/, ConstTensorView /*bias*/, TensorView /*out*/) {
    return false;
  }
  // out[t] = table row ids[t] - vocabulary.begin, or zeros where ids[t] is not in the range. Zeros are +0, so
  // that a sum over shards is exact.
  virtual void embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) = 0;

  // --- what quantised weights need of their inputs; a backend without them refuses ---
  // out[t] = the largest |x[t, i]|, fp32; NaN where the row has one.
  virtual void row_abs_maxima(ConstTensorView x, TensorView out);
  // out[t, c] = column order[c] of token t in x [ranks, tokens, part], its columns counted over the ranks.
  virtual void gather_columns(ConstTensorView x, ConstTensorView order, TensorView out);

  // --- rows ---
  virtual void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) = 0;
  // residual += delta (fp32 or the activation type; one rounding), out = rms_norm(residual). All [tokens,
  // width].
  virtual void add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                            TensorView out) = 0;
  // add_rms_norm without the norm: the same bits in residual.
  virtual void add_residual(ConstTensorView delta, TensorView residual) = 0;
  // out[t, i] = gate_up[t, i], which gates gate_up[t, width + i]
  virtual void gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) = 0;
  // out = a + b, elementwise, same type; out may be a or b. One step of the reduction tree.
  virtual void add(ConstTensorView a, ConstTensorView b, TensorView out) = 0;
  // out = the sum of one or more parts of the same type and shape, with the bits of add() along the binary
  // tree ((0+1)+(2+3))+..., where an odd part passes up. copy: gets the sum too, unless it is empty. out and
  // copy may each be one of the parts.
  virtual void add_tree(std::span<const ConstTensorView> parts, TensorView out, TensorView copy);
  // x[t] += bias. fp32.
  virtual void add_bias(TensorView x, ConstTensorView bias) = 0;
  // sum[t] += sigmoid(gate[t]) * x[t]; gate [tokens, 1]. fp32.
  virtual void add_gated(ConstTensorView x, ConstTensorView gate, TensorView sum) = 0;
  // out[i] = x[rows[i]]; rows int32.
  virtual void gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) = 0;

  // --- experts ---
  // Chooses by fp32 logits [tokens, all experts], as the router says. Fills the routing and returns a bound of its rows: on a host
  // their number.
  virtual int64_t route(ConstTensorView logits, const Router& router, Routing& routing) = 0;
  // Widens x, multiplies it by the fp32 gate [all experts, columns of x] and routes, in one. Returns nothing and does nothing where
  // the backend has no such kernel for so many tokens.
  virtual std::optional<int64_t> matmul_route(ConstTensorView /*x*/, const Weight& /*gate*/,
                                              const Router& /*router*/, Routing& /*routing*/) {
    return {};
  }
  // out[row] = the gated product of its expert for x[token of row], fp32 inside. weights: by expert of this rank, gate in the
  // first half of the rows, up in the second. A half is a multiple of 32; what is beyond out's width is padding. biases: fp32
  // [experts of this rank, rows of a weight], added before the gate; or empty.
  virtual void grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x, const Routing& routing,
                                       std::span<const Weight* const> weights, ConstTensorView biases,
                                       TensorView out) = 0;
  // out[row] = x[row] * weight of its expert^T. out is fp32. row_maxima: as in matmul.
  virtual void grouped_matmul(ConstTensorView x, const Routing& routing,
                              std::span<const Weight* const> weights, TensorView out,
                              ConstTensorView row_maxima = {}) = 0;
  // out[t] = sum of weight * (rows[row] + bias of its expert) over the rows of token t, fp32. biases: fp32 [experts of this rank,
  // columns], or empty. A leaf is the rounded product, + 0. The experts of this rank form `slices` equal slices, a power of two: a
  // chain over each by ascending expert, then the binary tree over slices, nearest first, without those that have no row.
  virtual void combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
                       TensorView out) = 0;
  // out = x in fp32.
  virtual void widen(ConstTensorView x, TensorView out) = 0;

  // --- tables on the device by seat: int32 ---
  // out[indices[i]] = values[i]. Indices are distinct and count the elements of out.
  virtual void scatter(ConstTensorView indices, ConstTensorView values, TensorView out) = 0;
  // Replaces an id below 0 by the token last sampled for seat -1 - id. Then tokens[places[i]] = ids[i], but where a place is -1 or
  // there are no tokens.
  virtual void resolve_last_tokens(ConstTensorView last_tokens, TensorView ids, ConstTensorView places = {},
                                   TensorView tokens = {}) = 0;

  // --- attention ---
  // out[t] = the sum of squares of each query and key head of qkv (see rotary_store): fp32 [tokens, query + key heads].
  virtual void head_squares(ConstTensorView qkv, const HeadLayout& heads, TensorView out) = 0;
  // qkv is [tokens, query | key | value heads]. Normalises (if asked) and rotates query and key heads (NeoX
  // halves, fp32, one rounding), writes the queries to `queries` [tokens, query_width], and stores keys and
  // values at batch.slots. cos_sin: fp32 [positions, rotary width], the first half cosines, the second sines. The width is a multiple
  // of 16 up to key_dim: each half of a head rotates its first width / 2 lanes.
  virtual void rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                            ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                            const KvPages& pages) = 0;
  // Keys and values always come from the cache. Slots that no token wrote (they may hold NaN) never enter a
  // result. Throws Error (input) for a soft cap, or scales of a cache that is not fp8, which no backend has yet.
  void attention(const AttentionCall& call);
  // Called at start-up, before any step is captured: announces such calls, with up to this number of sequences. Tensors may be without
  // memory.
  virtual void prepare_attention(const AttentionCall& /*call*/) {}
  // out [tokens, query width] = attention over a context of several owners, from what each of them made (AttentionCall):
  // partials fp32 [owners, tokens, query heads, value_dim + 2]. sinks: as in
  // AttentionCall, of these heads. Owners that divide attention_classes: the bits of one owner.
  virtual void merge_partials(ConstTensorView partials, ConstTensorView sinks, TensorView out) = 0;

  // --- latent attention: one KV head, whose rows [c | k_r] are shared (KvLayout); r = value_dim, the other lanes rotate ---
  // The first lanes of head h of out = the first of head h of x * weights[h]^T. x and out are [tokens, heads x any width that is
  // enough]; what is beyond is neither read nor written. Weights are dense, of one shape and one slice.
  virtual void matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, TensorView out) = 0;
  // Norms the first r lanes of rows [tokens, key_dim], rotates the others as rotary_store does, and stores what has a slot, rounded once.
  virtual void latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                            const AttentionBatch& batch, const KvPages& pages) = 0;
  // The last lanes of each head of queries [tokens, heads x key_dim], those beyond r, = the last as many of each head of
  // x [tokens, heads x any width], rotated. The first ones are what matmul_heads left there.
  virtual void latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                              const AttentionBatch& batch, TensorView queries) = 0;

  // Names the kernels that compute attention, for messages; empty where there is no choice. windowed: with a window or sinks.
  virtual std::string attention_path(DType /*dtype*/, const HeadLayout& /*heads*/, bool /*windowed*/) const {
    return "";
  }
  // What a user should know of how this device computes what was prepared; empty: nothing.
  virtual std::string warning() const { return ""; }

  // --- sampling: logits are fp32 [rows, shard width], the shard's global ids are `vocabulary`, columns past
  // vocabulary.size() are padding; spans point into the device's memory ---
  // Changes the logits of the shard in each row's row, as kernels/logit_adjustments.hpp says.
  virtual void adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                             const SequenceTables& tables) = 0;
  // candidates[rows[i]].logit = that of its id in row i of raw, where the id is in the shard.
  virtual void raw_logits(ConstTensorView raw, ConstTensorView rows, IndexRange vocabulary,
                          std::span<Candidate> candidates) = 0;
  // out[i] = the logit of ids[i] in row i; -inf where the shard has no such token.
  virtual void logits_of(ConstTensorView logits, ConstTensorView ids, IndexRange vocabulary,
                         std::span<float> out) = 0;
  // lists[i] = the largest logits of the shard in row listed[i].
  virtual void candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                          std::span<CandidateList> lists) = 0;
  // cuts[row] = what the filters leave of the shard, for each row of `listed`; all of them are filtered_by_candidates().
  // lists are those of all shards, [shards, listed rows].
  virtual void filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits,
                                 IndexRange vocabulary, ConstTensorView listed,
                                 std::span<const SamplingRow> rows, std::span<Cut> cuts) = 0;
  // The same for each other filtered row of `listed`, from whole logits [shards, rows, shard width] of the listed rows and
  // others after them, or of all. Ids at or above vocabulary_size are padding.
  virtual void filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                             std::span<const SamplingRow> rows, std::span<Cut> cuts) = 0;
  // The best candidate of the shard for each row; `cuts` counts where the row is filtered, and without any such rows are
  // left out. Nothing left: score -inf, id INT32_MAX; a row with a logit that is not finite: no_token.
  virtual void best_candidates(ConstTensorView logits, IndexRange vocabulary,
                               std::span<const SamplingRow> rows, std::span<const Cut> cuts,
                               std::span<Candidate> out) = 0;
  // out[row] = the winner of gathered[shard * out.size() + row] over the shards,
  // last_tokens[seats[row]] = its id, of no_token 0. Seats are distinct, except -1: its token is not kept.
  virtual void choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
                      TensorView last_tokens) = 0;
  // maxima[row] = largest logit of the shard (-inf if empty).
  virtual void row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) = 0;
  // sums[row * chunks + c] = sum of exp(logit - maximum of the row) over chunk c of the shard's padded width,
  // which divides by chunks. maxima are those of all shards, [shards, rows]: the largest of a row counts.
  virtual void exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima,
                        int chunks, std::span<float> sums) = 0;
  // out = the largest logits of the shard in `row`, by (logit descending, id ascending); at most as many as it has.
  virtual void largest_logits(ConstTensorView logits, IndexRange vocabulary, int64_t row,
                              std::span<TokenLogit> out) = 0;

 protected:
  virtual void attend(const AttentionCall& call) = 0;
};

}  // namespace maniple
