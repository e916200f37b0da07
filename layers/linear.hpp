// Linear layers, sharded over the tensor group: y = x W^T + b with W stored [outputs, inputs].
//
//   column parallel: a rank holds rows of W and computes its part of y;          no communication
//   row parallel:    a rank holds columns of W and a part of x, and y is a sum;  one all_reduce
#pragma once

#include <layers/forward_context.hpp>
#include <layers/weight.hpp>

#include <span>
#include <string>
#include <vector>

namespace maniple {

// One logical output of a layer: the rows of `<source>.weight`. Checkpoints keep those of a merged layer
// apart (q_proj, k_proj, v_proj), or as rows [first_row, first_row + rows) of `<fused>.weight`, of fused_rows
// in all.
struct LogicalOutput {
  std::string source;
  int64_t rows = 0;
  std::string fused = {};
  int64_t fused_rows = 0;
  int64_t first_row = 0;
};
// All outputs of a merged layer, which a checkpoint may keep one below the other in one tensor.
std::vector<LogicalOutput> fused_as(const std::string& fused, std::vector<LogicalOutput> outputs);

// Any layer whose rank holds whole rows of W. The base of the layers below, which say which rows.
class LinearBase {
 public:
  // x [tokens, inputs] -> [tokens, local outputs], in the activation type (or fp32 if asked).
  TensorView forward(ConstTensorView x, ForwardContext& context) const {
    return forward(x, context, context.activation);
  }
  TensorView forward(ConstTensorView x, ForwardContext& context, DType out) const;
  // The first half of the local outputs gates the second: x -> activation(first) * second, [tokens, half].
  TensorView forward_gated(GateActivation activation, ConstTensorView x, ForwardContext& context) const;
  int64_t local_outputs() const { return weight_.spec.rows; }
  void list(Parameters& parameters);

 protected:
  LinearBase(int64_t inputs, bool bias) : inputs_(inputs), has_bias_(bias) {}
  // Appends a part of the output's rows to the local rows.
  void append(const LogicalOutput& output, IndexRange part);

 private:
  int64_t inputs_;
  bool has_bias_;
  Parameter weight_;
  Parameter bias_;
};

class ReplicatedLinear : public LinearBase {
 public:
  ReplicatedLinear(const LogicalOutput& output, int64_t inputs, bool bias);
};

class ColumnParallelLinear : public LinearBase {
 public:
  ColumnParallelLinear(const LogicalOutput& output, int64_t inputs, bool bias, TensorRank tensor);
};

// Several outputs in one product, each sharded as evenly as can be: local rows are [part of 0 | part of 1 |
// ...].
class MergedColumnParallelLinear : public LinearBase {
 public:
  MergedColumnParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs, bool bias,
                             TensorRank tensor);
};

// Query, key and value heads in one product: local rows are [q | k | v]. KV heads are shared by ranks when
// there are more ranks than heads.
class QkvParallelLinear : public LinearBase {
 public:
  // outputs: query, key and value.
  QkvParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs, int64_t head_dim, bool bias,
                    TensorRank tensor);
  const HeadLayout& heads() const { return heads_; }

 private:
  HeadLayout heads_;
};

class RowParallelLinear {
 public:
  RowParallelLinear(const std::string& source, int64_t outputs, int64_t inputs, bool bias, TensorRank tensor);
  // x [tokens, inputs / tensor size] -> fp32 [tokens, outputs], the same bits on every rank and for every
  // tensor size that divides the reduction slices. fp32 because the caller adds it to the residual stream:
  // one rounding in all.
  TensorView forward(ConstTensorView x, ForwardContext& context) const;
  // This rank's part of the sum, without bias: for a caller that reduces it in another way (scattered, or
  // fused with what follows).
  TensorView forward_partial(ConstTensorView x, ForwardContext& context) const;
  void list(Parameters& parameters);

 private:
  int64_t outputs_;
  bool has_bias_;
  Parameter weight_;
  Parameter bias_;  // whole on every rank, added once, after the sum
};

}  // namespace maniple
