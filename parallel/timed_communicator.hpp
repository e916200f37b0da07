// Forwards every call and adds up the time, by operation and size too: the communication of a run's summary and record. `waits` is true
// during a call: supervision then tells a rank that hangs from the ranks that wait for it.
#pragma once

#include <kernels/tensor/device.hpp>
#include <parallel/communicator.hpp>

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>

namespace maniple {

class TimedCommunicator final : public Communicator {
 public:
  TimedCommunicator(std::unique_ptr<Communicator> inner, Device& device, std::atomic<bool>& waits)
      : inner_(std::move(inner)), device_(device), waits_(waits) {}
  double seconds() const override { return seconds_; }
  CollectiveCounts counts() const override { return counts_; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool captures() const override { return inner_->captures(); }
  std::string sums() const override { return inner_->sums(); }
  TensorView sum_memory(size_t bytes) override { return inner_->sum_memory(bytes); }
  void all_reduce(TensorView x) override {
    time(CollectiveOp::all_reduce, x.bytes(), [&] { inner_->all_reduce(x); });
  }
  void all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override {
    time(CollectiveOp::all_gather, in.bytes(), [&] { inner_->all_gatherv(in, out, rows); });
  }
  void reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override {
    time(CollectiveOp::reduce_scatter, in.bytes(), [&] { inner_->reduce_scatterv(in, out, rows); });
  }
  void all_to_all(ConstTensorView in, TensorView out) override {
    time(CollectiveOp::all_to_all, in.bytes(), [&] { inner_->all_to_all(in, out); });
  }
  void broadcast(TensorView x, int root) override {
    time(CollectiveOp::broadcast, x.bytes(), [&] { inner_->broadcast(x, root); });
  }
  void send(ConstTensorView x, int to) override {
    time(CollectiveOp::send, x.bytes(), [&] { inner_->send(x, to); });
  }
  void receive(TensorView x, int from) override {
    time(CollectiveOp::receive, x.bytes(), [&] { inner_->receive(x, from); });
  }

 private:
  template <typename Call>
  void time(CollectiveOp op, size_t bytes, Call&& call) {
    if (!captures()) device_.synchronize();  // the device's own work does not count as communication
    const auto start = std::chrono::steady_clock::now();
    waits_ = true;
    call();
    waits_ = false;
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    seconds_ += taken;
    counts_.add(op, bytes, captures() ? std::numeric_limits<double>::quiet_NaN() : taken);
  }

  std::unique_ptr<Communicator> inner_;
  Device& device_;
  std::atomic<bool>& waits_;
  double seconds_ = 0;
  CollectiveCounts counts_;
};

}  // namespace maniple
