// Messages that a collective operation moves, and whether they arrive as they should.
#pragma once

#include <kernels/backend.hpp>
#include <kernels/tensor/tensor.hpp>
#include <launch/tools/options/bench_options.hpp>
#include <parallel/communicator.hpp>

#include <span>
#include <vector>

namespace maniple {

// Messages in device memory, and what should arrive: small whole numbers, whose sums are exact in every type.
class Messages {
 public:
  // most: elements of the largest message. The references must outlive it.
  Messages(Communicator& group, Backend& backend, DType type, int64_t most);

  // Enqueues one operation on `count` elements of any value. all_gather and reduce_scatter: of the whole, in
  // parts that differ by one element at most. broadcast: from rank 0. sendrecv: every rank sends to the next
  // and receives from the previous one.
  void run(CommOp op, int64_t count) { run(op, count, parts(count)); }
  // Seconds of a call, of so many in a row.
  double time(CommOp op, int64_t count, int calls);
  // Runs the operation once on known values. Returns how many other values arrive on this rank.
  uint64_t count_wrong(CommOp op, int64_t count);

  DType type() const { return type_; }
  int ranks() const { return group_.size(); }

 private:
  std::vector<int64_t> parts(int64_t count) const;  // of the ranks
  void run(CommOp op, int64_t count, std::span<const int64_t> parts);
  template <typename Value>
  void fill(TensorView view, Value value);
  template <typename Value>
  uint64_t count_differences(TensorView view, Value expected);

  Communicator& group_;
  Backend& backend_;
  DType type_;
  Tensor whole_, other_;
};

}  // namespace maniple
