#include <kernels/contracts.hpp>
#include <kernels/cuda/cuda_ops.hpp>
#include <kernels/cuda/elementwise.hpp>
#include <kernels/cuda/sampling.hpp>
#include <kernels/cuda/skinny_gemm.hpp>
#include <kernels/paged_rows.hpp>

#include <algorithm>
#include <limits>

namespace maniple::cuda {

namespace {

constexpr int64_t max_biased_columns = int64_t{1} << 18;
static_assert(max_decode_sequences == max_gpu_sequences && max_head_dim == max_gpu_head_dim);

Logits shard_of(ConstTensorView logits, IndexRange vocabulary) {
  return {logits.as<float>(), narrow(logits.shape[0]), narrow(logits.shape[1]),
          static_cast<int32_t>(vocabulary.begin), narrow(vocabulary.size())};
}

}  // namespace

CudaOps::CudaOps(Device& device, device::Stream stream, std::unique_ptr<Gemm> gemm)
    : device_(device),
      stream_(stream),
      gemm_(std::move(gemm)),
      bias_(device, DType::bf16, {max_biased_columns}),
      scratch_(device, DType::fp32, {scratch_bytes / 4}),  // 16000 splits of 16 heads of 128
      decode_counters_(zeroed(device, DType::int32, {decode_counters(max_decode_sequences, 16)})),
      skinny_partials_(device, DType::fp32, {skinny_partial_floats}),
      skinny_arrivals_(zeroed(device, DType::int32, {skinny_arrivals})) {}

// cuBLASLt wants a bias of the result's type.
ConstTensorView CudaOps::rounded_bias(ConstTensorView bias, DType dtype) {
  if (bias.empty() || dtype == DType::fp32) return bias;
  require(bias.shape[0] <= max_biased_columns, "columns of a biased product");
  convert(stream_, bias.dtype, bias.data, dtype, bias_.view().data, bias.shape[0]);
  return {bias_.view().data, dtype, bias.shape};
}

void CudaOps::matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                     ConstTensorView row_maxima) {
  contract::matmul(x, weight, bias, out);
  if (out.empty()) return;
  if (multiply_few_rows(x, weight, bias, out, row_maxima, {})) return;
  if (weight.format != WeightFormat::dense) return multiply_codes(x, weight, bias, out, row_maxima);
  gemm_->multiply(stream_, x, weight.packed, rounded_bias(bias, out.dtype), out);
}

bool CudaOps::matmul_gate_mul(GateActivation activation, ConstTensorView x, const Weight& weight,
                              ConstTensorView bias, TensorView out) {
  contract::matmul_gate_mul(x, weight, bias, out);
  return out.shape[0] == 0 || multiply_few_rows(x, weight, bias, out, {}, activation);
}

void CudaOps::rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) {
  contract::rms_norm(x, weight, out);
  void* const read_only = const_cast<std::byte*>(x.data);  // written only where there is a delta
  norm_rows(stream_, {x.dtype, read_only, nullptr, x.dtype, weight.as<float>(), epsilon, out.data,
                      narrow(x.shape[0]), narrow(x.shape[1])});
}

void CudaOps::add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                           TensorView out) {
  contract::add_residual(delta, residual);
  contract::rms_norm(residual, weight, out);
  norm_rows(stream_, {residual.dtype, residual.data, delta.data, delta.dtype, weight.as<float>(), epsilon,
                      out.data, narrow(residual.shape[0]), narrow(residual.shape[1])});
}

void CudaOps::gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) {
  contract::gate_mul(gate_up, out);
  cuda::gate_mul(stream_, activation, out.dtype, gate_up.data, out.data, out.shape[0], narrow(out.shape[1]));
}

void CudaOps::add(ConstTensorView a, ConstTensorView b, TensorView out) {
  contract::add(a, b, out);
  cuda::add(stream_, {a.dtype, a.data, b.data, b.dtype, out.data, 1, a.shape.elements()});
}

void CudaOps::add_residual(ConstTensorView delta, TensorView residual) {
  contract::add_residual(delta, residual);
  cuda::add(stream_, {residual.dtype, residual.data, delta.data, delta.dtype, residual.data, 1,
                      residual.shape.elements()});
}

void CudaOps::add_gated(ConstTensorView x, ConstTensorView gate, TensorView sum) {
  contract::add_gated(x, gate, sum);
  cuda::add(stream_, {sum.dtype, sum.data, x.data, x.dtype, sum.data, x.shape[0], x.shape[1], false,
                      gate.as<float>()});
}

void CudaOps::add_bias(TensorView x, ConstTensorView bias) {
  contract::add_bias(x, bias);
  cuda::add(stream_, {x.dtype, x.data, bias.data, bias.dtype, x.data, x.shape[0], x.shape[1], true});
}

void CudaOps::gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) {
  contract::gather_rows(x, rows, out);
  const int64_t row_bytes = x.shape.row_elements() * static_cast<int64_t>(size_of(x.dtype));
  require(row_bytes % 2 == 0, "gather_rows: whole pairs of bytes");
  cuda::gather_rows(stream_, rows.as<int32_t>(), 0, x.shape[0], x.data, out.data, narrow(rows.shape[0]),
                    row_bytes);
}

void CudaOps::scatter(ConstTensorView indices, ConstTensorView values, TensorView out) {
  require(indices.shape == values.shape, "a scatter has a value for each index");
  cuda::scatter(stream_, indices.as<int32_t>(), values.as<int32_t>(), out.as<int32_t>(),
                narrow(indices.shape.elements()));
}

void CudaOps::resolve_last_tokens(ConstTensorView last_tokens, TensorView ids, ConstTensorView places,
                                  TensorView tokens) {
  cuda::resolve_last_tokens(stream_, last_tokens.as<int32_t>(), ids.as<int32_t>(),
                            narrow(ids.shape.elements()), tokens.empty() ? nullptr : places.as<int32_t>(),
                            tokens.as<int32_t>());
}

void CudaOps::head_squares(ConstTensorView qkv, const HeadLayout& heads, TensorView out) {
  contract::head_squares(qkv, heads, out);
  require(heads.key_dim <= max_head_dim, "head_squares: head size");
  cuda::head_squares(stream_, qkv.dtype, qkv.data, out.as<float>(), narrow(out.shape[0]),
                     narrow(heads.query_heads), narrow(heads.kv_heads), narrow(heads.key_dim));
}

void CudaOps::rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                           ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                           const KvPages& pages) {
  contract::rotary_store(qkv, heads, norms, cos_sin, batch, queries, pages);
  const int64_t dim = heads.key_dim;
  require(dim % 16 == 0 && dim <= max_head_dim, "rotary_store: head size");
  const PagedRows rows(pages);
  cuda::rotary_store(stream_, {qkv.dtype,
                               qkv.data,
                               cos_sin.as<float>(),
                               floats_of(norms.query),
                               floats_of(norms.key),
                               floats_of(norms.squares),
                               norms.squares.empty() ? 0 : narrow(norms.squares.shape[1]),
                               narrow(norms.query_heads),
                               norms.epsilon,
                               narrow(norms.size > 0 ? norms.size : dim),
                               batch.positions.as<int32_t>(),
                               batch.slots.as<int32_t>(),
                               queries.data,
                               rows.keys.data,
                               rows.values.data,
                               narrow(batch.tokens()),
                               narrow(heads.query_heads),
                               narrow(heads.kv_heads),
                               narrow(dim),
                               narrow(cos_sin.shape[1]),
                               narrow(pages.layout.block_size),
                               pages.layout.dtype == DType::fp8,
                               pages.key_scale,
                               pages.value_scale});
}

void CudaOps::prepare_attention(const AttentionCall& call) {
  if (!on_tensor_cores(call)) return;
  const int64_t sequences = call.batch.sequences(), heads = call.heads.query_heads;
  const int64_t floats = classes_of(call.context) * sequences * decode_slot_floats(heads, call.heads.key_dim);
  if (floats > scratch_.shape().elements()) scratch_ = Tensor(device_, DType::fp32, {floats});
  if (decode_counters(sequences, heads) > decode_counters_.shape().elements())
    decode_counters_ = zeroed(device_, DType::int32, {decode_counters(sequences, heads)});
}

DecodeWorkspace CudaOps::decode_workspace(const AttentionArguments& arguments) {
  const int64_t slots =
      scratch_.shape().elements() / decode_slot_floats(arguments.query_heads, arguments.head_dim);
  require(
      arguments.classes * arguments.sequences <= slots &&
          decode_counters(arguments.sequences, arguments.query_heads) <= decode_counters_.shape().elements(),
      "more sequences than attention was prepared for");
  return {scratch_.view().as<float>(), narrow(slots), decode_counters_.view().as<int32_t>()};
}

void CudaOps::attend(const AttentionCall& call) {
  const HeadLayout& heads = call.heads;
  const AttentionBatch& batch = call.batch;
  contract::attention(call);
  require(std::max(heads.key_dim, heads.value_dim) <= max_head_dim, "attention: head size");
  const PagedRows rows(call.pages);
  const AttentionArguments arguments{.dtype = call.queries.dtype,
                                     .queries = call.queries.data,
                                     .out = call.out.data,
                                     .keys = rows.keys.data,
                                     .values = rows.values.data,
                                     .query_starts = batch.query_starts.as<int32_t>(),
                                     .past_lengths = batch.past_lengths.as<int32_t>(),
                                     .seats = batch.seats.as<int32_t>(),
                                     .block_tables = batch.block_tables.as<int32_t>(),
                                     .table_width = narrow(batch.block_tables.shape[1]),
                                     .sequences = narrow(batch.sequences()),
                                     .tokens = narrow(batch.tokens()),
                                     .query_heads = narrow(heads.query_heads),
                                     .kv_heads = narrow(heads.kv_heads),
                                     .head_dim = narrow(heads.key_dim),
                                     .block_size = narrow(rows.layout.block_size),
                                     .scale = call.scale * call.pages.key_scale,
                                     .owner = narrow(call.context.owner),
                                     .owners = narrow(call.context.owners),
                                     .classes = narrow(classes_of(call.context)),
                                     .codes = rows.layout.dtype == DType::fp8,
                                     .value_scale = call.pages.value_scale};
  if (!on_tensor_cores(call))
    return attention_untuned(
        stream_, arguments,
        {.value_dim = narrow(heads.value_dim),
         .value_stride = narrow(rows.layout.value_lanes()),
         .window = narrow(std::min<int64_t>(call.window, std::numeric_limits<int32_t>::max())),
         .sinks = floats_of(call.sinks)});
  attention_decode(stream_, arguments, decode_workspace(arguments));
  if (arguments.tokens > arguments.sequences) attention_prefill(stream_, arguments);
}

void CudaOps::merge_partials(ConstTensorView partials, ConstTensorView sinks, TensorView out) {
  contract::merge_partials(partials, sinks, out);
  cuda::merge_partials(stream_, out.dtype, partials.as<float>(), narrow(partials.shape[0]),
                       narrow(partials.shape[1] * partials.shape[2]), narrow(partials.shape[3] - 2),
                       floats_of(sinks), narrow(partials.shape[2]), out.data);
}

void CudaOps::adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                            const SequenceTables& tables) {
  contract::shard(logits, vocabulary, logits.shape[0]);
  cuda::adjust_logits(stream_, logits.as<float>(), shard_of(logits, vocabulary), rows.data(),
                      narrow(rows.size()), tables);
}

void CudaOps::raw_logits(ConstTensorView raw, ConstTensorView rows, IndexRange vocabulary,
                         std::span<Candidate> candidates) {
  contract::shard(raw, vocabulary, rows.shape[0]);
  cuda::raw_logits(stream_, shard_of(raw, vocabulary), rows.as<int32_t>(), candidates.data());
}

void CudaOps::logits_of(ConstTensorView logits, ConstTensorView ids, IndexRange vocabulary,
                        std::span<float> out) {
  contract::shard(logits, vocabulary, std::ssize(out));
  cuda::logits_of(stream_, shard_of(logits, vocabulary), ids.as<int32_t>(), out.data());
}

void CudaOps::candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                         std::span<CandidateList> lists) {
  contract::candidates(logits, vocabulary, listed, lists);
  require(max_parts * lists.size_bytes() <= size_t{scratch_bytes}, "candidates: room for lists of parts");
  cuda::candidates(stream_, shard_of(logits, vocabulary), listed.as<int32_t>(), narrow(listed.shape[0]),
                   reinterpret_cast<CandidateList*>(scratch_.view().data), lists.data());
}

void CudaOps::filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits,
                                IndexRange vocabulary, ConstTensorView listed,
                                std::span<const SamplingRow> rows, std::span<Cut> cuts) {
  contract::filter_candidates(lists, logits, vocabulary, listed, rows, cuts);
  cuda::filter_candidates(stream_, lists.data(), narrow(std::ssize(lists) / listed.shape[0]),
                          shard_of(logits, vocabulary), listed.as<int32_t>(), narrow(listed.shape[0]),
                          rows.data(), cuts.data());
}

void CudaOps::filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                            std::span<const SamplingRow> rows, std::span<Cut> cuts) {
  contract::filter_logits(gathered, vocabulary_size, listed, rows, cuts);
  const bool in_place = static_cast<size_t>(gathered.shape[1]) == rows.size();
  const Logits logits{gathered.as<float>(), narrow(gathered.shape[1]), narrow(gathered.shape[2]), 0,
                      narrow(vocabulary_size)};
  require(vocabulary_size < (1 << 24), "filter_logits: sums of probabilities that 64 bits hold");
  require(filter_bytes(logits) <= scratch_bytes, "filter_logits: room for a row");
  cuda::filter_logits(stream_, logits, in_place, listed.as<int32_t>(), narrow(listed.shape[0]), rows.data(),
                      {scratch_.view().data, scratch_.view().bytes()}, cuts.data());
}

void CudaOps::best_candidates(ConstTensorView logits, IndexRange vocabulary,
                              std::span<const SamplingRow> rows, std::span<const Cut> cuts,
                              std::span<Candidate> out) {
  contract::best_candidates(logits, vocabulary, rows, out);
  cuda::best_candidates(stream_, shard_of(logits, vocabulary), rows.data(), cuts.data(),
                        reinterpret_cast<Candidate*>(scratch_.view().data), out.data());
}

void CudaOps::choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
                     TensorView last_tokens) {
  contract::choose(gathered, seats, out);
  cuda::choose(stream_, gathered.data(), narrow(gathered.size() / out.size()), narrow(out.size()),
               seats.as<int32_t>(), out.data(), last_tokens.as<int32_t>());
}

void CudaOps::row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) {
  contract::shard(logits, vocabulary, std::ssize(maxima));
  cuda::row_maxima(stream_, shard_of(logits, vocabulary), maxima.data());
}

void CudaOps::exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima,
                       int chunks, std::span<float> sums) {
  contract::exp_sums(logits, vocabulary, maxima, chunks, sums);
  cuda::exp_sums(stream_, shard_of(logits, vocabulary), maxima.data(),
                 narrow(std::ssize(maxima) / logits.shape[0]), chunks, sums.data());
}

void CudaOps::largest_logits(ConstTensorView logits, IndexRange vocabulary, int64_t row,
                             std::span<TokenLogit> out) {
  contract::largest_logits(logits, vocabulary, row, out);
  require(out.size() <= max_largest_logits, "largest_logits: more than a block holds");
  if (out.empty()) return;
  cuda::largest_logits(stream_, shard_of(logits, vocabulary), narrow(row), narrow(out.size()), out.data());
}

}  // namespace maniple::cuda
