#include <layers/attention.hpp>

#include <cmath>

namespace maniple {
namespace {

std::vector<LogicalOutput> query_key_value(const std::string& source, const ModelConfig& config) {
  const int64_t query = config.num_heads * config.head_dim, kv = config.num_kv_heads * config.head_dim;
  return fused_as(source + ".qkv_proj",
                  {{source + ".q_proj", query}, {source + ".k_proj", kv}, {source + ".v_proj", kv}});
}

}  // namespace

Attention::Attention(const std::string& source, const ModelConfig& config, TensorRank tensor)
    : head_dim_(config.head_dim),
      qkv_(query_key_value(source, config), config.hidden_size, config.head_dim, config.qkv_bias, tensor),
      output_(source + ".o_proj", config.hidden_size, config.num_heads * config.head_dim, config.o_bias,
              tensor, {head_dim_ / 2, heads().key_dim / 2}, config.activation_group) {
  if (!config.qk_norm) return;
  const auto norm = [&](const char* name) {
    return RmsNorm::of_heads(source + name, head_dim_, heads().key_dim,
                             static_cast<float>(config.rms_norm_eps));
  };
  query_norm_.emplace(norm(".q_norm"));
  key_norm_.emplace(norm(".k_norm"));
}

HeadNorms Attention::norms() const {
  if (!query_norm_) return {};
  return {query_norm_->weight(), key_norm_->weight(), query_norm_->epsilon(), head_dim_};
}

TensorView Attention::forward(ConstTensorView x, ConstTensorView cos_sin, const AttentionBatch& batch,
                              const KvPages& pages, ForwardContext& context) const {
  const HeadLayout& layout = heads();
  const Shape query_shape{x.shape[0], layout.query_width()};
  const TensorView queries = context.workspace.take(context.activation, query_shape);
  const TensorView attended = context.workspace.take(context.activation, query_shape);
  const TensorView qkv = qkv_.forward(x, context);
  context.ops.rotary_store(qkv, layout, norms(), cos_sin, batch, queries, pages);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim_)));
  const AttentionCall call{queries, layout, batch, pages, attended, scale};
  if (context.groups.context)
    attend_shared(call, context);
  else
    context.ops.attention(call);
  return output_.forward(attended, context);
}

void Attention::attend_shared(const AttentionCall& mine, ForwardContext& context) const {
  Communicator& group = *context.groups.context;
  const Workspace::Scope scope(context.workspace);
  const int64_t tokens = mine.queries.shape[0], owners = group.size();
  const HeadLayout& layout = mine.heads;
  AttentionCall shared = mine;
  shared.heads.query_heads *= owners;
  shared.context = {group.rank(), owners};
  const TensorView queries =
      context.workspace.take(context.activation, {owners, tokens, layout.query_width()});
  const Shape shape{owners, tokens, layout.query_heads, layout.value_dim + 2};
  const TensorView partials = context.workspace.take(DType::fp32, shape),
                   received = context.workspace.take(DType::fp32, shape);
  group.all_gather(mine.queries, queries);
  shared.queries = queries;
  shared.out = partials;
  context.ops.attention(shared);
  group.all_to_all(partials, received);
  context.ops.merge_partials(received, mine.out);
}

void Attention::append_parameters(Parameters& parameters) {
  qkv_.append_parameters(parameters);
  output_.append_parameters(parameters);
  if (!query_norm_) return;
  query_norm_->append_parameters(parameters);
  key_norm_->append_parameters(parameters);
}

}  // namespace maniple
