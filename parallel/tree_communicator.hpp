// A communicator over any transport. Sums follow the tree of Communicator::all_reduce, so their bits do not
// depend on the transport.
#pragma once

#include <kernels/ops.hpp>
#include <parallel/communicator.hpp>
#include <parallel/transport.hpp>
#include <parallel/tree_reduce.hpp>

#include <memory>
#include <string>
#include <vector>

namespace maniple {

class TreeCommunicator : public Communicator {
 public:
  // The transport must accept pointers to the memory of ops.device().
  TreeCommunicator(std::unique_ptr<Transport> transport, Ops& ops, std::string sums = "messages");

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool captures() const override { return size_ == 1; }
  std::string sums() const override { return size_ == 1 ? "" : sums_; }
  void all_reduce(TensorView x) override;
  void all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override;
  // out may be this rank's part of in.
  void reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override;
  void all_to_all(ConstTensorView in, TensorView out) override;
  void broadcast(TensorView x, int root) override;
  void send(ConstTensorView x, int to) override;
  void receive(TensorView x, int from) override;

 protected:
  void copy(ConstTensorView from, TensorView to);
  // Elements of x for each rank, as equal as possible.
  std::vector<int64_t> equal_parts(ConstTensorView x) const;
  Transport& transport() { return *transport_; }
  Ops& ops() { return ops_; }

 private:
  void exchange_partial_sums(TensorView x);
  void gather_and_sum(TensorView x);
  void sum_in_parts(TensorView x);
  void sum(std::vector<ConstTensorView>& parts, TensorView slots, TensorView out);
  // Device memory that is valid until the next call of scratch(). It grows and never shrinks.
  TensorView scratch(DType dtype, const Shape& shape);

  std::unique_ptr<Transport> transport_;
  Ops& ops_;
  const int rank_;
  const int size_;
  const std::string sums_;
  const std::vector<std::vector<TreeAddition>> levels_;
  Tensor scratch_;
};

}  // namespace maniple
