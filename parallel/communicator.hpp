// Collective operations of one group of ranks over tensors on each rank's device. They run in the order of
// the device's work. All members call the same operations in the same order with the same shapes. A failure
// throws; the group is unusable after it.
#pragma once

#include <kernels/tensor/tensor_view.hpp>
#include <parallel/collective_counts.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace maniple {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // in the group
  virtual int size() const = 0;
  // True: every operation only enqueues work on the device, and a graph can capture it.
  virtual bool captures() const = 0;
  // What carries the values of sums, for the banner: "messages"; empty: nobody chooses.
  virtual std::string sums() const { return {}; }
  // Collective. Memory of the device from which sums are fastest, at the same place of it on all ranks; without memory where any is as
  // good. It is the group's: the same at every call of this size.
  virtual TensorView sum_memory(size_t /*bytes*/) { return {}; }
  // Time spent in calls so far; 0 unless measured (TimedCommunicator).
  virtual double seconds() const { return 0; }
  virtual CollectiveCounts counts() const { return {}; }  // of the calls so far; none unless measured

  // Sums x over the ranks, in place, with the same bits on all. Outside NCCL the order of additions is a
  // contract: the binary tree over ranks ((0+1)+(2+3))+..., where an odd rank passes up and each addition is
  // an Ops::add. This tree continues the one over the reduction slices inside a rank. A row-parallel sum
  // therefore has the same bits for every tensor size that divides the slices. NCCL chooses its own order,
  // which may change with size, ranks and machine.
  virtual void all_reduce(TensorView x) = 0;
  // out is [size, in.shape...].
  void all_gather(ConstTensorView in, TensorView out);
  // in is [rows[rank], ...], out is [sum of rows, ...]; rows has one entry per rank.
  virtual void all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) = 0;
  // in is [sum of rows, ...], out is [rows[rank], ...]: this rank's part of the sum, added in the order of all_reduce.
  virtual void reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) = 0;
  // in and out are [size, ...]: out[r] is what rank r has at in[rank].
  virtual void all_to_all(ConstTensorView in, TensorView out) = 0;
  virtual void broadcast(TensorView x, int root) = 0;
  virtual void send(ConstTensorView x, int to) = 0;
  virtual void receive(TensorView x, int from) = 0;
};

}  // namespace maniple
