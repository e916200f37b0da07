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

TensorView LinearBase::forward(ConstTensorView x, ForwardContext& context, DType out_type) const {
  const TensorView out = context.workspace.take(out_type, {x.shape[0], local_outputs()});
  context.ops.matmul(x, weight_.matrix, bias_.vector, out);
  return out;
}

TensorView LinearBase::forward_gated(GateActivation activation, ConstTensorView x,
                                     ForwardContext& context) const {
  const TensorView out = context.workspace.take(context.activation, {x.shape[0], local_outputs() / 2});
  if (!context.ops.matmul_gate_mul(activation, x, weight_.matrix, bias_.vector, out))
    context.ops.gate_mul(activation, forward(x, context), out);
  return out;
}

void LinearBase::append(const LogicalOutput& output, IndexRange part) {
  const auto fused = [&](const char* ending, const Shape& shape) {
    return output.fused.empty() ? FusedTensor{} : FusedTensor{output.fused + ending, shape, output.first_row};
  };
  weight_.spec.columns = inputs_;
  weight_.spec.pieces.push_back({output.source + ".weight",
                                 {output.rows, inputs_},
                                 part,
                                 {0, inputs_},
                                 weight_.spec.rows,
                                 fused(".weight", {output.fused_rows, inputs_})});
  weight_.spec.rows += part.size();
  if (!has_bias_) return;
  bias_.spec.role = WeightRole::vector;
  bias_.spec.pieces.push_back({output.source + ".bias",
                               {output.rows},
                               part,
                               {0, 1},
                               bias_.spec.rows,
                               fused(".bias", {output.fused_rows})});
  bias_.spec.rows += part.size();
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
  append(query, {q.begin * head_dim, q.end * head_dim});
  for (const LogicalOutput& output : outputs.subspan(1))
    for (const int64_t head : kv) append(output, {head * head_dim, (head + 1) * head_dim});
  heads_ = {q.size(), static_cast<int64_t>(kv.size()), head_dim};
}

RowParallelLinear::RowParallelLinear(const std::string& source, int64_t outputs, int64_t inputs, bool bias,
                                     TensorRank tensor)
    : outputs_(outputs), has_bias_(bias) {
  const IndexRange columns = balanced_shard(inputs, tensor.size, tensor.rank);
  const int slices = reduction_slices(inputs, tensor.size).local;
  weight_.spec = {WeightRole::matrix,
                  outputs,
                  columns.size(),
                  slices,
                  {{source + ".weight", {outputs, inputs}, {0, outputs}, columns, 0}}};
  bias_.spec = {WeightRole::vector, outputs, 1, 1, {{source + ".bias", {outputs}, {0, outputs}, {0, 1}, 0}}};
}

TensorView RowParallelLinear::forward_partial(ConstTensorView x, ForwardContext& context) const {
  const TensorView sum = context.workspace.take(DType::fp32, {x.shape[0], outputs_});
  context.ops.matmul(x, weight_.matrix, {}, sum);
  return sum;
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
