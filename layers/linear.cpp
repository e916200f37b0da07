#include <layers/linear.hpp>
#include <parallel/shard.hpp>

#include <utility>

namespace maniple {

std::vector<LogicalOutput> fused_as(const std::string& fused, std::vector<LogicalOutput> outputs) {
  int64_t rows = 0;
  for (LogicalOutput& output : outputs) {
    output.fused = fused;
    output.first_row = std::exchange(rows, rows + output.rows);
  }
  for (LogicalOutput& output : outputs) output.fused_rows = rows;
  return outputs;
}

ConstTensorView in_order(ConstTensorView x, const Weight& weight, ForwardContext& context) {
  if (!weight.ordered) return x;
  const int64_t tokens = x.shape[0], width = x.shape[1];
  const TensorView sorted = context.workspace.take(x.dtype, {tokens, weight.columns});
  context.ops.gather_columns(x.reshaped({1, tokens, width}), weight.order, sorted);
  return sorted;
}

TensorView LinearBase::forward(ConstTensorView x, ForwardContext& context, DType out_type) const {
  const TensorView out = context.workspace.take(out_type, {x.shape[0], local_outputs()});
  const Workspace::Scope scope(context.workspace);
  context.ops.matmul(in_order(x, weight_.matrix, context), weight_.matrix, bias_.vector, out);
  return out;
}

TensorView LinearBase::forward_gated(GateActivation activation, ConstTensorView x,
                                     ForwardContext& context) const {
  const TensorView out = context.workspace.take(context.activation, {x.shape[0], local_outputs() / 2});
  const Workspace::Scope scope(context.workspace);
  x = in_order(x, weight_.matrix, context);
  if (context.ops.matmul_gate_mul(activation, x, weight_.matrix, bias_.vector, out)) return out;
  const TensorView gate_up = context.workspace.take(context.activation, {x.shape[0], local_outputs()});
  context.ops.matmul(x, weight_.matrix, bias_.vector, gate_up);
  context.ops.gate_mul(activation, gate_up, out);
  return out;
}

void LinearBase::append(const LogicalOutput& output, IndexRange part) {
  const auto fused = [&](const char* name, const Shape& shape) {
    return output.fused.empty() ? FusedTensor{} : FusedTensor{{output.fused, name}, shape, output.first_row};
  };
  weight_.spec.columns = inputs_;
  weight_.spec.pieces.push_back({{output.source, "weight"},
                                 {output.rows, inputs_},
                                 part,
                                 {0, inputs_},
                                 weight_.spec.rows,
                                 fused("weight", {output.fused_rows, inputs_})});
  weight_.spec.rows += part.size();
  if (!has_bias_) return;
  bias_.spec.role = WeightRole::vector;
  bias_.spec.pieces.push_back({{output.source, "bias"},
                               {output.rows},
                               part,
                               {0, 1},
                               bias_.spec.rows,
                               fused("bias", {output.fused_rows})});
  bias_.spec.rows += part.size();
}

void LinearBase::pad(int64_t rows) {
  weight_.spec.rows += rows;
  bias_.spec.rows += rows;
}

void LinearBase::append_parameters(Parameters& parameters) {
  parameters.push_back(&weight_);
  if (has_bias_) parameters.push_back(&bias_);
}

ReplicatedLinear::ReplicatedLinear(const LogicalOutput& output, int64_t inputs, bool bias)
    : LinearBase(inputs, bias) {
  append(output, {0, output.rows});
}

ColumnParallelLinear::ColumnParallelLinear(const LogicalOutput& output, int64_t inputs, bool bias,
                                           TensorRank tensor)
    : LinearBase(inputs, bias) {
  append(output, even_shard(output.rows, tensor.size, tensor.rank, "outputs"));
}

MergedColumnParallelLinear::MergedColumnParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs,
                                                       bool bias, TensorRank tensor)
    : LinearBase(inputs, bias) {
  for (const LogicalOutput& output : outputs)
    append(output, balanced_shard(output.rows, tensor.size, tensor.rank));
}

QkvParallelLinear::QkvParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs, int64_t head_dim,
                                     bool bias, TensorRank tensor)
    : LinearBase(inputs, bias) {
  const LogicalOutput &query = outputs[0], &key = outputs[1];
  const IndexRange q = even_shard(query.rows / head_dim, tensor.size, tensor.rank, "attention heads");
  const std::vector<int64_t> kv =
      kv_head_shard(query.rows / head_dim, key.rows / head_dim, tensor.size, tensor.rank);
  append_heads(query, head_dim, q);
  for (const LogicalOutput& output : outputs.subspan(1))
    for (const int64_t head : kv) append_heads(output, head_dim, {head, head + 1});
  heads_ = {q.size(), static_cast<int64_t>(kv.size()), padded(head_dim)};
}

void QkvParallelLinear::append_heads(const LogicalOutput& output, int64_t head_dim, IndexRange heads) {
  const int64_t padding = padded(head_dim) - head_dim, half = head_dim / 2;
  if (padding == 0) return append(output, {heads.begin * head_dim, heads.end * head_dim});
  for (int64_t row = heads.begin * head_dim; row < heads.end * head_dim; row += half) {
    append(output, {row, row + half});
    pad(padding / 2);
  }
}

RowParallelLinear::RowParallelLinear(const std::string& source, int64_t outputs, int64_t inputs, bool bias,
                                     TensorRank tensor, ColumnPadding padding, int64_t granule)
    : outputs_(outputs), has_bias_(bias) {
  const IndexRange columns = granular_shard(inputs, tensor.size, tensor.rank, granule);
  const int slices = reduction_slices(padding.local(inputs), tensor.size, granule).local;
  weight_.spec = {WeightRole::matrix,
                  outputs,
                  padding.local(columns.size()),
                  slices,
                  {{{source, "weight"}, {outputs, inputs}, {0, outputs}, columns, 0, {}, padding}}};
  bias_.spec = {WeightRole::vector, outputs, 1, 1, {{{source, "bias"}, {outputs}, {0, outputs}, {0, 1}, 0}}};
}

// The ranks hold parts of the inputs, but an order of inputs and the largest input of a token are of all parts.
TensorView RowParallelLinear::forward_partial(ConstTensorView x, ForwardContext& context) const {
  const TensorView sum = context.workspace.take_sum(DType::fp32, {x.shape[0], outputs_});
  const Workspace::Scope scope(context.workspace);
  context.ops.matmul(ordered(x, context), weight_.matrix, {}, sum, row_maxima(x, context));
  return sum;
}

ConstTensorView RowParallelLinear::ordered(ConstTensorView x, ForwardContext& context) const {
  Communicator& group = *context.groups.tensor;
  if (!weight_.matrix.ordered || group.size() == 1) return in_order(x, weight_.matrix, context);
  const int64_t tokens = x.shape[0];
  const TensorView all = context.workspace.take(x.dtype, {group.size(), tokens, x.shape[1]}),
                   sorted = context.workspace.take(x.dtype, {tokens, weight_.matrix.columns});
  group.all_gather(x, all);
  context.ops.gather_columns(all, weight_.matrix.order, sorted);
  return sorted;
}

ConstTensorView RowParallelLinear::row_maxima(ConstTensorView x, ForwardContext& context) const {
  Communicator& group = *context.groups.tensor;
  if (weight_.matrix.activation != ActivationRule::per_token || group.size() == 1) return {};
  const TensorView own = context.workspace.take(DType::fp32, {x.shape[0]}),
                   all = context.workspace.take(DType::fp32, {group.size(), x.shape[0]});
  context.ops.row_abs_maxima(x, own);
  group.all_gather(own, all);
  return all;
}

TensorView RowParallelLinear::forward(ConstTensorView x, ForwardContext& context) const {
  const TensorView sum = context.rows.sum(forward_partial(x, context), *context.groups.tensor);
  if (has_bias_) context.ops.add_bias(sum, bias_.vector);
  return sum;
}

void RowParallelLinear::append_parameters(Parameters& parameters) {
  parameters.push_back(&weight_);
  if (has_bias_) parameters.push_back(&bias_);
}

}  // namespace maniple
