#include <layers/models/decoder.hpp>
#include <layers/rotary.hpp>

#include <string>

namespace maniple {

namespace {

std::variant<Attention, LatentAttention> attention_of(const std::string& source, const LayerConfig& layer,
                                                      const ModelConfig& config, TensorRank tensor) {
  if (layer.attention == AttentionKind::latent) return LatentAttention(source, layer, config, tensor);
  return Attention(source, layer, config, tensor);
}

}  // namespace

Decoder::Layer::Layer(const std::string& name, const LayerConfig& layer, const ModelConfig& config,
                      const RankPlan& plan)
    : rotary(layer.rotary),
      window(layer.window),
      input_norm(name + ".input_layernorm", config.hidden_size, config.rms_norm_eps),
      attention(attention_of(name + ".self_attn", layer, config, plan.tensor())),
      post_attention_norm(name + ".post_attention_layernorm", config.hidden_size, config.rms_norm_eps),
      feed_forward(name, layer, config, plan) {}

Decoder::Decoder(const ModelConfig& config, const RankPlan& plan)
    : config_(config),
      own_(plan.layers.value_or(IndexRange{0, config.num_layers()})),
      vocabulary_(vocabulary_shard(config.vocab_size, plan.tensor().size, plan.tensor().rank)) {
  const std::string table = "model.embed_tokens";
  if (plan.is_first_stage()) embedding_.emplace(table, config.vocab_size, config.hidden_size, plan.tensor());
  for (int64_t layer = own_.begin; layer < own_.end; ++layer)
    layers_.emplace_back("model.layers." + std::to_string(layer), config.layers[static_cast<size_t>(layer)],
                         config, plan);
  if (!plan.is_last_stage()) return;
  final_norm_.emplace("model.norm", config.hidden_size, config.rms_norm_eps);
  if (config.tie_word_embeddings && embedding_)
    lm_head_.emplace(*embedding_);
  else
    lm_head_.emplace(config.tie_word_embeddings ? table : "lm_head", config.vocab_size, config.hidden_size,
                     plan.tensor());
}

Parameters Decoder::parameters() {
  Parameters parameters;
  if (embedding_) embedding_->append_parameters(parameters);
  for (Layer& layer : layers_) {
    layer.input_norm.append_parameters(parameters);
    std::visit([&](auto& attention) { attention.append_parameters(parameters); }, layer.attention);
    layer.post_attention_norm.append_parameters(parameters);
    layer.feed_forward.append_parameters(parameters);
  }
  if (final_norm_) final_norm_->append_parameters(parameters);
  if (lm_head_) lm_head_->append_parameters(parameters);
  return parameters;
}

std::vector<int64_t> Decoder::windows() const {
  std::vector<int64_t> windows;
  for (const Layer& layer : layers_) windows.push_back(layer.window);
  return windows;
}

bool Decoder::ignores(std::string_view source) const {
  return (config_.tie_word_embeddings && source == "lm_head.weight") ||
         source.ends_with(".rotary_emb.inv_freq");
}

void Decoder::prepare(Ops& ops, int64_t max_model_len) {
  cos_sin_.clear();
  for (const RotaryConfig& rotary : config_.rotaries) {
    const int64_t width = rotary.width_of(config_.head_dim), padded = (width + 15) / 16 * 16;
    const std::vector<float> table = rotary_table(rotary, width, padded, max_model_len);
    cos_sin_.emplace_back(ops.device(), DType::fp32, Shape{max_model_len, padded});
    ops.device().upload(cos_sin_.back().view().data, reinterpret_cast<const std::byte*>(table.data()),
                        cos_sin_.back().view().bytes());
  }
  for (Layer& layer : layers_) {
    if (auto* attention = std::get_if<Attention>(&layer.attention)) attention->prepare(ops.device());
    layer.feed_forward.prepare(ops.device());
  }
}

std::vector<ConstTensorView> Decoder::expert_counts() const {
  std::vector<ConstTensorView> counts;
  for (const Layer& layer : layers_)
    if (const SparseMoe* experts = layer.feed_forward.experts()) counts.push_back(experts->counts());
  return counts;
}

TensorView Decoder::forward(const StepBatch& batch, TensorView input, std::span<const KvPages> pages,
                            ForwardContext& context) {
  const int64_t tokens = batch.attention.tokens();
  context.rows = rows(tokens, context.groups);
  context.past_lengths = batch.attention.past_lengths;
  context.blocks = batch.blocks;
  const TensorView residual = embedding_ ? embedding_->forward(input, context) : input;
  const TensorView hidden = context.workspace.take(context.activation, {tokens, config_.hidden_size});
  layers_.front().input_norm.forward(residual, hidden, context);
  for (size_t index = 0; index < layers_.size(); ++index)
    forward_layer(index, batch, pages[index], residual, hidden, context);
  if (!lm_head_) return residual;

  const TensorView sampled =
      context.workspace.take(context.activation, {batch.sampled_rows.shape[0], config_.hidden_size});
  context.ops.gather_rows(hidden, batch.sampled_rows, sampled);
  return lm_head_->forward(sampled, context);
}

void Decoder::forward_layer(size_t index, const StepBatch& batch, const KvPages& pages, TensorView residual,
                            TensorView hidden, ForwardContext& context) const {
  context.layer = static_cast<uint32_t>(own_.begin) + static_cast<uint32_t>(index);
  context.groups.poll();
  const Workspace::Scope scope(context.workspace);
  const Layer& layer = layers_[index];
  const TensorView attended = std::visit(
      [&](const auto& attention) {
        return attention.forward(hidden, cos_sin_[layer.rotary].view(), batch.attention_of(layer.window > 0),
                                 pages, context);
      },
      layer.attention);
  layer.post_attention_norm.forward_adding(attended, residual, hidden, context);
  const TensorView fed_forward = layer.feed_forward.forward(hidden, context);
  if (index + 1 < layers_.size())
    layers_[index + 1].input_norm.forward_adding(fed_forward, residual, hidden, context);
  else if (final_norm_)
    final_norm_->forward_adding(fed_forward, residual, hidden, context);
  else
    context.ops.add_residual(fed_forward, residual);  // the next stage begins with its own norm
}

}  // namespace maniple
