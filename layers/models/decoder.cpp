#include <layers/models/decoder.hpp>
#include <layers/rotary.hpp>

#include <string>

namespace maniple {

Decoder::Layer::Layer(const std::string& source, const ModelConfig& config, TensorRank tensor)
    : input_norm(source + ".input_layernorm", config.hidden_size, static_cast<float>(config.rms_norm_eps)),
      attention(source + ".self_attn", config, tensor),
      post_attention_norm(source + ".post_attention_layernorm", config.hidden_size,
                          static_cast<float>(config.rms_norm_eps)),
      mlp(source + ".mlp", config, tensor) {}

Decoder::Decoder(const ModelConfig& config, TensorRank tensor)
    : config_(config),
      embedding_("model.embed_tokens", config.vocab_size, config.hidden_size, tensor),
      final_norm_("model.norm", config.hidden_size, static_cast<float>(config.rms_norm_eps)),
      lm_head_(config.tie_word_embeddings
                   ? LmHead(embedding_)
                   : LmHead("lm_head", config.vocab_size, config.hidden_size, tensor)) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    layers_.emplace_back("model.layers." + std::to_string(layer), config, tensor);
}

Parameters Decoder::parameters() {
  Parameters parameters;
  embedding_.list(parameters);
  for (Layer& layer : layers_) {
    layer.input_norm.list(parameters);
    layer.attention.list(parameters);
    layer.post_attention_norm.list(parameters);
    layer.mlp.list(parameters);
  }
  final_norm_.list(parameters);
  lm_head_.list(parameters);
  return parameters;
}

bool Decoder::ignores(std::string_view source) const {
  return (config_.tie_word_embeddings && source == "lm_head.weight") ||
         source.ends_with(".rotary_emb.inv_freq");
}

void Decoder::prepare(Ops& ops, int64_t max_model_len) {
  const std::vector<float> table = rotary_table(config_.rotary, config_.head_dim, max_model_len);
  cos_sin_ = Tensor(ops.device(), DType::fp32, {max_model_len, config_.head_dim});
  ops.device().upload(cos_sin_.view().data, reinterpret_cast<const std::byte*>(table.data()),
                      cos_sin_.view().bytes());
}

TensorView Decoder::forward(const StepBatch& batch, std::span<const KvPages> pages, ForwardContext& context) {
  const int64_t tokens = batch.token_ids.shape[0];
  const TensorView residual = embedding_.forward(batch.token_ids, context);
  const TensorView hidden = context.workspace.take(context.activation, {tokens, config_.hidden_size});
  layers_.front().input_norm.forward(residual, hidden, context);

  for (size_t index = 0; index < layers_.size(); ++index) {
    context.layer = static_cast<uint32_t>(index);
    const Layer& layer = layers_[index];
    const RmsNorm& next_norm = index + 1 < layers_.size() ? layers_[index + 1].input_norm : final_norm_;
    const Workspace::Scope scope(context.workspace);
    const TensorView attended =
        layer.attention.forward(hidden, cos_sin_, batch.attention, pages[index], context);
    layer.post_attention_norm.forward_adding(attended, residual, hidden, context);
    const TensorView fed_forward = layer.mlp.forward(hidden, context);
    next_norm.forward_adding(fed_forward, residual, hidden, context);
  }

  const TensorView sampled =
      context.workspace.take(context.activation, {batch.sampled_rows.shape[0], config_.hidden_size});
  context.ops.gather_rows(hidden, batch.sampled_rows, sampled);
  return lm_head_.forward(sampled, context);
}

}  // namespace maniple
