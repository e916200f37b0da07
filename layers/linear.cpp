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

TensorView fp32_product(ConstTensorView x, const Parameter& weight, ForwardContext& context) {
  const TensorView product = context.workspace.take(DType::fp32, {x.shape[0], weight.spec.rows});
  if (x.dtype != DType::fp32) {
    const TensorView wide = context.workspace.take(DType::fp32, x.shape);
    context.ops.widen(x, wide);
    x = wide;
  }
  context.ops.matmul(x, weight.matrix, {}, product);
  return product;
}

ConstTensorView row_maxima(ConstTensorView x, const Weight& weight, int parts, Communicator& group,
                           ForwardContext& context) {
  if (weight.activation != ActivationRule::per_token || parts == 1) return {};
  const TensorView own = context.workspace.take(DType::fp32, {x.shape[0]}),
                   all = context.workspace.take(DType::fp32, {parts, x.shape[0]});
  context.ops.row_abs_maxima(x, own);
  group.all_gather(own, all);
  return all;
}

TensorView LinearBase::forward(ConstTensorView x, ForwardContext& context) const {
  const TensorView out = context.workspace.take(context.activation, {x.shape[0], weight_.spec.rows});
  const Workspace::Scope scope(context.workspace);
  context.ops.matmul(in_order(x, weight_.matrix, context), weight_.matrix, bias_.vector, out);
  return out;
}

TensorView LinearBase::forward_gated(GateActivation activation, ConstTensorView x,
                                     ForwardContext& context) const {
  const TensorView out = context.workspace.take(context.activation, {x.shape[0], weight_.spec.rows / 2});
  const Workspace::Scope scope(context.workspace);
  x = in_order(x, weight_.matrix, context);
  if (context.ops.matmul_gate_mul(activation, x, weight_.matrix, bias_.vector, out)) return out;
  const TensorView gate_up = context.workspace.take(context.activation, {x.shape[0], weight_.spec.rows});
  context.ops.matmul(x, weight_.matrix, bias_.vector, gate_up);
  context.ops.gate_mul(activation, gate_up, out);
  return out;
}

void LinearBase::place(const LogicalOutput& output, IndexRange part, int64_t local_row, int64_t step) {
  const auto add = [&](WeightSpec& spec, const char* name, Shape shape, const IndexRange& columns) {
    spec.pieces.push_back({.source = {output.source, name},
                           .source_shape = shape,
                           .rows = part,
                           .columns = columns,
                           .local_row = local_row,
                           .row_step = step});
    if (output.fused.empty()) return;
    shape[0] = output.fused_rows;
    spec.pieces.back().fused = {{output.fused, name}, shape, output.first_row};
  };
  weight_.spec.columns = inputs_;
  add(weight_.spec, "weight", {output.rows, inputs_}, {0, inputs_});
  if (!has_bias_) return;
  bias_.spec.role = WeightRole::vector;
  add(bias_.spec, "bias", {output.rows}, {0, 1});
}

void LinearBase::append(const LogicalOutput& output, IndexRange part) {
  place(output, part, weight_.spec.rows);
  weight_.spec.rows += part.size();
  bias_.spec.rows = weight_.spec.rows;
}

void LinearBase::append_head(const LogicalOutput& output, int64_t first, const HeadLanes& lanes) {
  lanes.for_each_run([&](IndexRange stored, int64_t local, int64_t step) {
    place(output, {first + stored.begin, first + stored.end}, weight_.spec.rows + local, step);
  });
  weight_.spec.rows += lanes.padded();
  bias_.spec.rows = weight_.spec.rows;
}

void LinearBase::append_parameters(Parameters& parameters) {
  parameters.push_back(&weight_);
  if (has_bias_) parameters.push_back(&bias_);
}

ReplicatedLinear::ReplicatedLinear(const LogicalOutput& output, int64_t inputs, bool bias)
    : LinearBase(inputs, bias) {
  append(output, {0, output.rows});
}

MergedColumnParallelLinear::MergedColumnParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs,
                                                       bool bias, TensorRank tensor)
    : LinearBase(inputs, bias) {
  for (const LogicalOutput& output : outputs)
    append(output, balanced_shard(output.rows, tensor.size, tensor.rank));
}

QkvParallelLinear::QkvParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs,
                                     const HeadLanes& lanes, bool bias, TensorRank tensor)
    : LinearBase(inputs, bias) {
  const int64_t size = lanes.size, query_heads = outputs[0].rows / size;
  const IndexRange q = even_shard(query_heads, tensor.size, tensor.rank, "attention heads");
  const std::vector<int64_t> kv =
      kv_head_shard(query_heads, outputs[1].rows / size, tensor.size, tensor.rank);
  if (lanes.as_stored()) append(outputs[0], {q.begin * size, q.end * size});
  for (int64_t head = q.begin; head < q.end && !lanes.as_stored(); ++head)
    append_head(outputs[0], head * size, lanes);
  for (const int64_t head : kv) append_head(outputs[1], head * size, lanes);
  for (const int64_t head : kv) append_head(outputs[2], head * size, {size, size});
  heads_ = {q.size(), static_cast<int64_t>(kv.size()), lanes.padded()};
}

RowParallelLinear::RowParallelLinear(const std::string& source, int64_t outputs, int64_t inputs, bool bias,
                                     TensorRank tensor, ColumnPadding padding, int64_t granule)
    : outputs_(outputs), parts_(tensor.size), has_bias_(bias) {
  const IndexRange columns = granular_shard(inputs, tensor.size, tensor.rank, granule);
  const int slices = reduction_slices(padding.local(inputs), tensor.size, granule).local;
  weight_.spec = {WeightRole::matrix,
                  outputs,
                  padding.local(columns.size()),
                  slices,
                  {{{source, "weight"}, {outputs, inputs}, {0, outputs}, columns, 0, {}, padding}}};
  bias_.spec = vector_spec({source, "bias"}, outputs, {0, outputs});
}

// The ranks hold parts of the inputs, but an order of inputs and the largest input of a token are of all parts.
TensorView RowParallelLinear::forward_partial(ConstTensorView x, ForwardContext& context) const {
  const Shape shape{x.shape[0], outputs_};
  const bool whole = parts_ < context.groups.tensor->size();
  const TensorView sum =
      whole ? context.workspace.take(DType::fp32, shape) : context.workspace.take_sum(DType::fp32, shape);
  forward_partial(x, sum, context);
  return sum;
}

void RowParallelLinear::forward_partial(ConstTensorView x, TensorView sum, ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  context.ops.matmul(ordered(x, context), weight_.matrix, {}, sum,
                     row_maxima(x, weight_.matrix, parts_, *context.groups.tensor, context));
}

ConstTensorView RowParallelLinear::ordered(ConstTensorView x, ForwardContext& context) const {
  Communicator& group = *context.groups.tensor;
  if (!weight_.matrix.ordered || parts_ == 1) return in_order(x, weight_.matrix, context);
  const int64_t tokens = x.shape[0];
  const TensorView all = context.workspace.take(x.dtype, {group.size(), tokens, x.shape[1]}),
                   sorted = context.workspace.take(x.dtype, {tokens, weight_.matrix.columns});
  group.all_gather(x, all);
  context.ops.gather_columns(all, weight_.matrix.order, sorted);
  return sorted;
}

TensorView RowParallelLinear::forward(ConstTensorView x, ForwardContext& context) const {
  TensorView sum = forward_partial(x, context);
  if (parts_ == context.groups.tensor->size()) sum = context.rows.sum(sum, *context.groups.tensor);
  if (has_bias_) context.ops.add_bias(sum, bias_.vector);
  return sum;
}

void RowParallelLinear::append_parameters(Parameters& parameters) {
  parameters.push_back(&weight_);
  if (has_bias_) parameters.push_back(&bias_);
}

}  // namespace maniple
