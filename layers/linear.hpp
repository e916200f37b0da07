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

// One logical output of a layer: the rows of `<source>.weight`. A checkpoint stores the outputs of a merged
// layer apart (q_proj, k_proj, v_proj), or as rows [first_row, first_row + rows) of `<fused>.weight`, which
// has fused_rows rows.
struct LogicalOutput {
  std::string source;
  int64_t rows = 0;
  std::string fused = {};
  int64_t fused_rows = 0;
  int64_t first_row = 0;
};
// Sets the fused fields of all outputs of a merged layer: a checkpoint may stack them in one tensor `fused`.
std::vector<LogicalOutput> fused_as(const std::string& fused, std::vector<LogicalOutput> outputs);

// x [tokens, inputs] in the order of the weight's columns.
ConstTensorView in_order(ConstTensorView x, const Weight& weight, ForwardContext& context);

// The base of the layers whose ranks hold whole rows of W. The derived classes decide which rows.
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
  void append_parameters(Parameters& parameters);

 protected:
  LinearBase(int64_t inputs, bool bias) : inputs_(inputs), has_bias_(bias) {}
  // Appends a part of the output's rows to the local rows.
  void append(const LogicalOutput& output, IndexRange part);
  // Appends rows of zeros.
  void pad(int64_t rows);

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

// Several outputs in one product, each sharded as evenly as possible. The local rows are
// [part of output 0 | part of output 1 | ...].
class MergedColumnParallelLinear : public LinearBase {
 public:
  MergedColumnParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs, bool bias,
                             TensorRank tensor);
};

// Query, key and value heads in one product: local rows are [q | k | v]. With more ranks than KV heads,
// several ranks hold copies of the same head. Kernels work on multiples of 16 lanes: other heads are padded
// to [half | 0 | half | 0], so that rotation keeps its pairs, and their zeros change no sum.
class QkvParallelLinear : public LinearBase {
 public:
  static int64_t padded(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

  // outputs: query, key and value.
  QkvParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs, int64_t head_dim, bool bias,
                    TensorRank tensor);
  const HeadLayout& heads() const { return heads_; }

 private:
  void append_heads(const LogicalOutput& output, int64_t head_dim, IndexRange heads);

  HeadLayout heads_;
};

class RowParallelLinear {
 public:
  // inputs: of the source; x has those of the padding too. No rank holds a part of `granule` inputs.
  RowParallelLinear(const std::string& source, int64_t outputs, int64_t inputs, bool bias, TensorRank tensor,
                    ColumnPadding padding = {}, int64_t granule = 1);
  // x [tokens, inputs / tensor size] -> fp32 [context.rows of tokens, outputs], the same bits on every rank
  // and for every tensor size that divides the reduction slices. The caller rounds once, when it adds the sum
  // to the residual stream.
  TensorView forward(ConstTensorView x, ForwardContext& context) const;
  // This rank's part of the sum, without bias: for a caller with its own reduction (reduce-scatter, or fused
  // with the next operation).
  TensorView forward_partial(ConstTensorView x, ForwardContext& context) const;
  void append_parameters(Parameters& parameters);

 private:
  ConstTensorView ordered(ConstTensorView x, ForwardContext& context) const;
  ConstTensorView row_maxima(ConstTensorView x, ForwardContext& context) const;

  int64_t outputs_;
  bool has_bias_;
  Parameter weight_;
  Parameter bias_;  // whole on every rank, added once, after the sum
};

}  // namespace maniple
