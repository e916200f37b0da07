// Which rows of the residual stream a tensor rank holds in a step: all of them, or, in a large step, a part of its own
// (sequence parallelism, arXiv 2205.05198). A sum over the ranks is then a reduce-scatter, the norm works on own rows only,
// and an all-gather of the norm's result feeds the next product: fewer bytes and the same bits.
#pragma once

#include <kernels/tensor/tensor_view.hpp>
#include <parallel/communicator.hpp>

#include <vector>

namespace maniple {

class ResidualRows {
 public:
  ResidualRows() = default;  // all rows
  // Of a step of [tokens, width], the same decision on every rank of the group. NCCL may add in another order when it
  // scatters, so groups over it always hold all rows.
  ResidualRows(int64_t tokens, int64_t width, const Communicator& tensor);

  bool sharded() const { return !rows_.empty(); }
  int64_t count(int64_t tokens) const { return sharded() ? own_.size() : tokens; }
  // This rank's rows of a tensor [tokens, ...].
  template <typename View>
  View own(View x) const {
    return sharded() ? x.rows(own_.begin, own_.size()) : x;
  }
  // Sums x [tokens, ...] over the group, in place, and returns this rank's rows. The others are unspecified.
  TensorView sum(TensorView x, Communicator& tensor) const;
  // Fills x [tokens, ...], of which each rank has its own rows.
  void gather(TensorView x, Communicator& tensor) const;

 private:
  std::vector<int64_t> rows_;  // of each rank; none if every rank has all
  IndexRange own_;
};

}  // namespace maniple
