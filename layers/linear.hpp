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

// Where the lanes of a head lie. Kernels work on multiples of 16, and rotate the first lanes of each half:
// [first of the pairs | unrotated | 0 | second of the pairs | unrotated | 0]. The zeros change no sum.
struct HeadLanes {
  int64_t size;
  int64_t rotary;            // the first lanes, as stored, which rotate in halves,
  bool interleaved = false;  // or, as stored, in pairs of neighbours

  int64_t padded() const { return (size + 15) / 16 * 16; }
  bool as_stored() const { return rotary == size && padded() == size && !interleaved; }
  // f(stored lanes, local lane where they begin, step): of the stored lanes every step-th, by the stored ones.
  template <typename F>
  void for_each_run(F f) const {
    if (as_stored()) return f(IndexRange{0, size}, int64_t{0}, int64_t{1});
    const int64_t half = padded() / 2, pairs = rotary / 2, rest = (size - rotary) / 2,
                  step = interleaved ? 2 : 1, second = interleaved ? 1 : pairs;
    f(IndexRange{0, interleaved ? rotary : pairs}, int64_t{0}, step);
    f(IndexRange{second, rotary}, half, step);
    if (rest == 0) return;
    f(IndexRange{rotary, rotary + rest}, pairs, int64_t{1});
    f(IndexRange{rotary + rest, size}, half + pairs, int64_t{1});
  }
};

// x [tokens, inputs] in the order of the weight's columns.
ConstTensorView in_order(ConstTensorView x, const Weight& weight, ForwardContext& context);

// x [tokens, columns] times a matrix in fp32 -> fp32 [tokens, rows].
TensorView fp32_product(ConstTensorView x, const Parameter& weight, ForwardContext& context);

// The largest |x| of each row in each of `parts` parts of its columns, which the ranks of the group hold: fp32 [parts, rows]. Empty where
// the weight does not round whole rows, or there is one part.
ConstTensorView row_maxima(ConstTensorView x, const Weight& weight, int parts, Communicator& group,
                           ForwardContext& context);

// The base of the layers whose ranks hold whole rows of W. The derived classes decide which rows.
class LinearBase {
 public:
  // x [tokens, inputs] -> [tokens, local outputs], in the activation type.
  TensorView forward(ConstTensorView x, ForwardContext& context) const;
  // The first half of the local outputs gates the second: x -> activation(first) * second, [tokens, half].
  TensorView forward_gated(GateActivation activation, ConstTensorView x, ForwardContext& context) const;
  void append_parameters(Parameters& parameters);

 protected:
  LinearBase(int64_t inputs, bool bias) : inputs_(inputs), has_bias_(bias) {}
  // Appends a part of the output's rows to the local rows.
  void append(const LogicalOutput& output, IndexRange part);
  // Appends a head, rows of the output from `first` on, where the kernels want them.
  void append_head(const LogicalOutput& output, int64_t first, const HeadLanes& lanes);

 private:
  void place(const LogicalOutput& output, IndexRange part, int64_t local_row, int64_t step = 1);

  int64_t inputs_;
  bool has_bias_;
  Parameter weight_;
  Parameter bias_;
};

class ReplicatedLinear : public LinearBase {
 public:
  ReplicatedLinear(const LogicalOutput& output, int64_t inputs, bool bias);
};

// Several outputs in one product, each sharded as evenly as possible. The local rows are
// [part of output 0 | part of output 1 | ...].
class MergedColumnParallelLinear : public LinearBase {
 public:
  MergedColumnParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs, bool bias,
                             TensorRank tensor);
};

// Query, key and value heads in one product: local rows are [q | k | v]. With more ranks than KV heads,
// several ranks hold copies of the same head.
class QkvParallelLinear : public LinearBase {
 public:
  // outputs: query, key and value. lanes: of a query and a key.
  QkvParallelLinear(std::span<const LogicalOutput> outputs, int64_t inputs, const HeadLanes& lanes, bool bias,
                    TensorRank tensor);
  const HeadLayout& heads() const { return heads_; }

 private:
  HeadLayout heads_;
};

// Where the tensor group has more ranks than `tensor`, each of them holds the whole layer: a sum is then a rank's own, for any rows.
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
  void forward_partial(ConstTensorView x, TensorView sum, ForwardContext& context) const;
  bool has_bias() const { return has_bias_; }
  void append_parameters(Parameters& parameters);

 private:
  ConstTensorView ordered(ConstTensorView x, ForwardContext& context) const;

  int64_t outputs_;
  int parts_;
  bool has_bias_;
  Parameter weight_;
  Parameter bias_;  // whole on every rank, added once, after the sum
};

}  // namespace maniple
