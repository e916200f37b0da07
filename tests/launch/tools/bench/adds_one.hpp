// A group with a fault.
#pragma once

#include <parallel/communicator.hpp>
#include <parallel/world.hpp>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace maniple {

inline std::vector<int> everyone(const World& world) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Rank 1 adds 1 to the first element that arrives.
class AddsOne final : public Communicator {
 public:
  explicit AddsOne(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool captures() const override { return inner_->captures(); }
  void all_reduce(TensorView x) override {
    inner_->all_reduce(x);
    spoil(x);
  }
  void all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override {
    inner_->all_gatherv(in, out, rows);
    spoil(out);
  }
  void reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override {
    inner_->reduce_scatterv(in, out, rows);
    spoil(out);
  }
  void all_to_all(ConstTensorView in, TensorView out) override { inner_->all_to_all(in, out); }
  void broadcast(TensorView x, int root) override {
    inner_->broadcast(x, root);
    spoil(x);
  }
  void send(ConstTensorView x, int to) override { inner_->send(x, to); }
  void receive(TensorView x, int from) override {
    inner_->receive(x, from);
    spoil(x);
  }

 private:
  void spoil(TensorView x) const {
    if (rank() == 1) x.as<float>()[0] += 1;
  }
  std::unique_ptr<Communicator> inner_;
};

}  // namespace maniple
