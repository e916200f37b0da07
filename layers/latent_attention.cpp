#include <layers/latent_attention.hpp>
#include <layers/rotary.hpp>

#include <cmath>

namespace maniple {
namespace {

HeadLanes plain_lanes(int64_t count) { return {count, count}; }
HeadLanes rotated_lanes(const LatentConfig& sizes) { return {sizes.rotary, sizes.rotary, sizes.interleaved}; }

// W_k [rank, plain] of a head, both padded.
WeightSpec key_spec(const WeightPiece& head, const LatentConfig& sizes) {
  const HeadLanes lanes = plain_lanes(sizes.rank);
  const int64_t inputs = plain_lanes(sizes.plain).padded();
  WeightSpec spec{.rows = lanes.padded(), .columns = inputs, .pieces = {}, .decoded = true};
  lanes.for_each_run([&](IndexRange stored, int64_t local, int64_t) {
    WeightPiece& piece = spec.pieces.emplace_back(head);
    piece.rows.end = head.rows.begin + sizes.plain;
    piece.columns = stored;
    piece.local_row = local;
    piece.padding = {sizes.plain / 2, inputs / 2};
    piece.transposed = true;
  });
  return spec;
}

// W_v [value, rank] of a head, the rank padded.
WeightSpec value_spec(WeightPiece head, const LatentConfig& sizes) {
  const int64_t padded = plain_lanes(sizes.rank).padded();
  head.rows.begin += sizes.plain;
  head.padding = {sizes.rank / 2, padded / 2};
  return {.rows = sizes.value, .columns = padded, .pieces = {head}, .decoded = true};
}

}  // namespace

LatentAttention::Heads::Heads(const LogicalOutput& output, int64_t inputs, bool bias, const HeadLanes& plain,
                              const HeadLanes& rotated, IndexRange heads)
    : LinearBase(inputs, bias) {
  const int64_t width = plain.size + rotated.size;
  for (int64_t first = heads.begin * width; first < heads.end * width; first += width) {
    append_head(output, first, plain);
    append_head(output, first + plain.size, rotated);
  }
}

LatentAttention::LatentAttention(const std::string& source, const LayerConfig& layer,
                                 const ModelConfig& config, TensorRank tensor)
    : sizes_(*config.latent),
      heads_{query_heads_of(config, tensor).size(), 1, sizes_.row_lanes(), plain_lanes(sizes_.rank).padded()},
      scale_(static_cast<float>(latent_score_factor(config.rotaries[layer.rotary]) /
                                std::sqrt(static_cast<double>(config.head_dim)))),
      query_({source + (sizes_.query_rank > 0 ? ".q_b_proj" : ".q_proj"), config.num_heads * config.head_dim},
             sizes_.query_rank > 0 ? sizes_.query_rank : config.hidden_size, false, plain_lanes(sizes_.plain),
             rotated_lanes(sizes_), query_heads_of(config, tensor)),
      row_({source + ".kv_a_proj_with_mqa", sizes_.rank + sizes_.rotary}, config.hidden_size, config.o_bias,
           plain_lanes(sizes_.rank), rotated_lanes(sizes_), {0, 1}),
      row_norm_(RmsNorm::of_heads(source + ".kv_a_layernorm", sizes_.rank, plain_lanes(sizes_.rank),
                                  std::vector<int64_t>{0}, sizes_.norm_eps)),
      output_(source + ".o_proj", config.hidden_size, config.attention_width(), config.o_bias, tensor, {},
              config.activation_group) {
  if (sizes_.query_rank > 0) {
    query_down_.emplace(LogicalOutput{source + ".q_a_proj", sizes_.query_rank}, config.hidden_size,
                        config.o_bias);
    query_norm_.emplace(source + ".q_a_layernorm", sizes_.query_rank, sizes_.norm_eps);
  }
  const IndexRange own = query_heads_of(config, tensor);
  const int64_t rows = sizes_.plain + sizes_.value;
  for (int64_t head = own.begin; head < own.end; ++head) {
    const WeightPiece piece{.source = {source + ".kv_b_proj"},
                            .source_shape = {config.num_heads * rows, sizes_.rank},
                            .rows = {head * rows, (head + 1) * rows},
                            .columns = {0, sizes_.rank}};
    keys_.push_back({key_spec(piece, sizes_)});
    values_.push_back({value_spec(piece, sizes_)});
  }
  key_weights_ = weights_of(keys_);
  value_weights_ = weights_of(values_);
}

TensorView LatentAttention::queries_of(ConstTensorView x, ForwardContext& context) const {
  if (!query_down_) return query_.forward(x, context);
  const TensorView compressed = query_down_->forward(x, context);
  context.ops.rms_norm(compressed, query_norm_->weight(), query_norm_->epsilon(), compressed);
  return query_.forward(compressed, context);
}

TensorView LatentAttention::forward(ConstTensorView x, ConstTensorView cos_sin, const AttentionBatch& batch,
                                    const KvPages& pages, ForwardContext& context) const {
  const auto take = [&](int64_t width) {
    return context.workspace.take(context.activation, {x.shape[0], width});
  };
  const TensorView row = row_.forward(x, context);
  context.ops.latent_store(row, {row_norm_.weight(), row_norm_.epsilon(), sizes_.rank}, cos_sin, batch,
                           pages);
  const TensorView heads = queries_of(x, context), queries = take(heads_.query_width()),
                   attended = take(heads_.out_width()), values = take(heads_.query_heads * sizes_.value);
  context.ops.matmul_heads(heads, key_weights_, queries);
  context.ops.latent_queries(heads, heads_, cos_sin, batch, queries);
  attend({queries, heads_, batch, pages, attended, scale_}, context);
  context.ops.matmul_heads(attended, value_weights_, values);
  return output_.forward(values, context);
}

void LatentAttention::append_parameters(Parameters& parameters) {
  if (query_down_) {
    query_down_->append_parameters(parameters);
    query_norm_->append_parameters(parameters);
  }
  query_.append_parameters(parameters);
  row_.append_parameters(parameters);
  row_norm_.append_parameters(parameters);
  for (size_t head = 0; head < keys_.size(); ++head) {
    parameters.push_back(&keys_[head]);
    parameters.push_back(&values_[head]);
  }
  output_.append_parameters(parameters);
}

}  // namespace maniple
