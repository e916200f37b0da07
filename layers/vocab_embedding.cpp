#include <layers/linear.hpp>
#include <layers/vocab_embedding.hpp>

namespace maniple {
namespace {

WeightSpec vocabulary_spec(const std::string& source, int64_t vocabulary_size, int64_t width,
                           const VocabularyShard& shard) {
  WeightSpec spec = matrix_spec({source}, {vocabulary_size, width}, shard.valid);
  spec.rows = shard.padded.size();
  return spec;
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(const std::string& source, int64_t vocabulary_size,
                                               int64_t width, TensorRank tensor)
    : width_(width), shard_(vocabulary_shard(vocabulary_size, tensor.size, tensor.rank)) {
  table_.spec = vocabulary_spec(source, vocabulary_size, width, shard_);
}

TensorView VocabParallelEmbedding::forward(ConstTensorView ids, ForwardContext& context) const {
  const TensorView out = context.workspace.take(context.activation, {ids.shape[0], width_});
  context.ops.embed(ids, table_.matrix, shard_.valid, out);
  return context.rows.sum(out, *context.groups.tensor);  // exact: all but one rank add +0
}

LmHead::LmHead(const std::string& source, int64_t vocabulary_size, int64_t width, TensorRank tensor)
    : shard_(vocabulary_shard(vocabulary_size, tensor.size, tensor.rank)) {
  own_.spec = vocabulary_spec(source, vocabulary_size, width, shard_);
}

LmHead::LmHead(const VocabParallelEmbedding& tied) : shard_(tied.shard()), tied_(&tied.table()) {}

TensorView LmHead::forward(ConstTensorView hidden, ForwardContext& context) const {
  const TensorView logits = context.workspace.take(DType::fp32, {hidden.shape[0], shard_.padded.size()});
  const Workspace::Scope scope(context.workspace);
  context.ops.matmul(in_order(hidden, weight().matrix, context), weight().matrix, {}, logits);
  return logits;
}

}  // namespace maniple
