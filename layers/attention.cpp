#include <layers/attention.hpp>
#include <parallel/shard.hpp>

#include <cmath>
#include <numeric>

namespace maniple {
namespace {

std::vector<LogicalOutput> query_key_value(const std::string& source, const ModelConfig& config) {
  const int64_t query = config.num_heads * config.head_dim, kv = config.num_kv_heads * config.head_dim;
  return fused_as(source + ".qkv_proj",
                  {{source + ".q_proj", query}, {source + ".k_proj", kv}, {source + ".v_proj", kv}});
}

HeadLanes lanes_of(const LayerConfig& layer, const ModelConfig& config) {
  return {config.head_dim, config.rotaries[layer.rotary].width_of(config.head_dim)};
}

std::vector<int64_t> kv_heads_of(const ModelConfig& config, TensorRank tensor) {
  return kv_head_shard(config.num_heads, config.num_kv_heads, tensor.size, tensor.rank);
}

// Each head of the model where its first holder has it: columns of the gathered squares of all ranks.
std::vector<int32_t> first_holders(const ModelConfig& config, int ranks) {
  std::vector<int32_t> query, key(static_cast<size_t>(config.num_kv_heads), -1);
  int32_t column = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int64_t i = query_heads_of(config, {rank, ranks}).size(); i > 0; --i) query.push_back(column++);
    for (const int64_t head : kv_heads_of(config, {rank, ranks})) {
      if (int32_t& first = key[static_cast<size_t>(head)]; first < 0) first = column;
      ++column;
    }
  }
  query.insert(query.end(), key.begin(), key.end());
  return query;
}

void attend_block(const AttentionCall& mine, ForwardContext& context) {
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
  context.ops.merge_partials(received, mine.sinks, mine.out);
}

// The bits of a token do not depend on the others of its block.
void attend_shared(const AttentionCall& mine, ForwardContext& context) {
  int64_t first = 0;
  for (const AttentionBatch& batch : context.blocks) {
    AttentionCall block = mine;
    block.batch = batch;
    block.queries = mine.queries.rows(first, batch.tokens());
    block.out = mine.out.rows(first, batch.tokens());
    attend_block(block, context);
    first += batch.tokens();
  }
  require(first == mine.batch.tokens(), "blocks of a shared context hold all tokens");
}

}  // namespace

IndexRange query_heads_of(const ModelConfig& config, TensorRank tensor) {
  return even_shard(config.num_heads, tensor.size, tensor.rank, "attention heads");
}

void attend(const AttentionCall& call, ForwardContext& context) {
  if (context.groups.context && call.window == 0)  // every rank holds what a window sees
    attend_shared(call, context);
  else
    context.ops.attention(call);
}

Attention::Attention(const std::string& source, const LayerConfig& layer, const ModelConfig& config,
                     TensorRank tensor)
    : head_dim_(config.head_dim),
      model_query_heads_(config.num_heads),
      qkv_(query_key_value(source, config), config.hidden_size, lanes_of(layer, config), config.qkv_bias,
           tensor),
      output_(source + ".o_proj", config.hidden_size, config.num_heads * config.head_dim, config.o_bias,
              tensor, {head_dim_ / 2, heads().key_dim / 2}, config.activation_group),
      window_(layer.window) {
  const IndexRange query_heads = query_heads_of(config, tensor);
  const auto norm = [&](const char* name, int64_t heads, const std::vector<int64_t>& own) {
    return RmsNorm::of_heads(source + name, heads * head_dim_, lanes_of(layer, config), own,
                             config.rms_norm_eps);
  };
  if (config.qk_norm) {
    query_norm_.emplace(norm(".q_norm", 1, {0}));
    key_norm_.emplace(norm(".k_norm", 1, {0}));
  } else if (config.whole_qk_norm) {
    std::vector<int64_t> own(static_cast<size_t>(query_heads.size()));
    std::iota(own.begin(), own.end(), query_heads.begin);
    query_norm_.emplace(norm(".q_norm", config.num_heads, own));
    key_norm_.emplace(norm(".k_norm", config.num_kv_heads, kv_heads_of(config, tensor)));
    heads_of_all_ = first_holders(config, tensor.size);
  }
  if (config.sinks) sinks_.spec = vector_spec({source + ".sinks", ""}, config.num_heads, query_heads);
}

void Attention::prepare(Device& device) {
  if (heads_of_all_.empty()) return;
  order_ = Tensor(device, DType::int32, {std::ssize(heads_of_all_)});
  device.upload(order_.view().data, reinterpret_cast<const std::byte*>(heads_of_all_.data()),
                order_.view().bytes());
}

HeadNorms Attention::norms(ConstTensorView qkv, ForwardContext& context) const {
  if (!query_norm_) return {};
  HeadNorms norms{query_norm_->weight(), key_norm_->weight(), query_norm_->epsilon(), head_dim_};
  if (heads_of_all_.empty()) return norms;
  norms.squares = squares_of_all(qkv, context);
  norms.query_heads = model_query_heads_;
  return norms;
}

ConstTensorView Attention::squares_of_all(ConstTensorView qkv, ForwardContext& context) const {
  Communicator& group = *context.groups.tensor;
  const auto take = [&](const Shape& shape) { return context.workspace.take(DType::fp32, shape); };
  const int64_t tokens = qkv.shape[0], own_heads = heads().query_heads + heads().kv_heads;
  const TensorView own = take({tokens, own_heads}), gathered = take({group.size(), tokens, own_heads}),
                   all = take({tokens, std::ssize(heads_of_all_)});
  context.ops.head_squares(qkv, heads(), own);
  group.all_gather(own, gathered);
  context.ops.gather_columns(gathered, order_.view(), all);
  return all;
}

TensorView Attention::forward(ConstTensorView x, ConstTensorView cos_sin, const AttentionBatch& batch,
                              const KvPages& pages, ForwardContext& context) const {
  const HeadLayout& layout = heads();
  const Shape query_shape{x.shape[0], layout.query_width()};
  const TensorView queries = context.workspace.take(context.activation, query_shape),
                   attended = context.workspace.take(context.activation, query_shape),
                   qkv = qkv_.forward(x, context);
  context.ops.rotary_store(qkv, layout, norms(qkv, context), cos_sin, batch, queries, pages);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim_)));
  attend({.queries = queries,
          .heads = layout,
          .batch = batch,
          .pages = pages,
          .out = attended,
          .scale = scale,
          .window = window_,
          .sinks = sinks_.vector},
         context);
  return output_.forward(attended, context);
}

void Attention::append_parameters(Parameters& parameters) {
  qkv_.append_parameters(parameters);
  output_.append_parameters(parameters);
  if (sinks_.spec.rows > 0) parameters.push_back(&sinks_);
  if (!query_norm_) return;
  query_norm_->append_parameters(parameters);
  key_norm_->append_parameters(parameters);
}

}  // namespace maniple
