// Collective operations of one group of ranks over tensors on the rank's device, in the order of the device's
// work. All members call the same operations in the same order with the same shapes. A failure throws; never
// continue after a collective failed.
#pragma once

#include <kernels/tensor/tensor_view.hpp>

#include <cstdint>
#include <span>

namespace maniple {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // in the group
  virtual int size() const = 0;
  // Every operation does no more than join the order of the device's work, so that a graph can record it.
  virtual bool captures() const = 0;
  // That its calls took so far, where somebody measures them.
  virtual double seconds() const { return 0; }

  // Sums x over the ranks, in place, same bits on all. In memory that the host reaches, and for whatever goes
  // through the host, the order is a contract: the binary tree over ranks ((0+1)+(2+3))+..., an odd one
  // passing up, each addition by Ops::add. It continues the tree over the reduction slices inside a rank, so
  // a row-parallel sum has the same bits for every tensor size that divides the slices. Over NCCL the order
  // is NCCL's, which may change with size, ranks and machine.
  virtual void all_reduce(TensorView x) = 0;
  // out is [size, in.shape...].
  void all_gather(ConstTensorView in, TensorView out);
  // in is [rows[rank], ...], out is [sum of rows, ...]; rows has one entry a rank.
  virtual void all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) = 0;
  // in is [size * n, ...], out is [n, ...]: this rank's part of the sum, in the same order.
  void reduce_scatter(ConstTensorView in, TensorView out);
  // in is [sum of rows, ...], out is [rows[rank], ...].
  virtual void reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) = 0;
  // out is [size, in.shape...] on root; elsewhere it is not used.
  virtual void gather(ConstTensorView in, TensorView out, int root) = 0;
  virtual void broadcast(TensorView x, int root) = 0;
  virtual void send(ConstTensorView x, int to) = 0;
  virtual void receive(TensorView x, int from) = 0;
};

}  // namespace maniple
