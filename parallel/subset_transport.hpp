// Some ranks of another transport as a group, without a new communicator. The other ranks do not take part.
#pragma once

#include <kernels/support/check.hpp>
#include <parallel/transport.hpp>

#include <algorithm>
#include <vector>

namespace maniple {

class SubsetTransport : public Transport {
 public:
  // ranks: those of `all` that form the group, in group order, this rank among them.
  SubsetTransport(Transport& all, std::vector<int> ranks)
      : all_(all),
        ranks_(std::move(ranks)),
        rank_(static_cast<int>(std::ranges::find(ranks_, all.rank()) - ranks_.begin())) {
    require(rank_ < size(), "a rank talks in a group that it is not in");
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    std::vector<Outgoing> out(outgoing.begin(), outgoing.end());
    std::vector<Incoming> in(incoming.begin(), incoming.end());
    for (Outgoing& message : out) message.to = ranks_[message.to];
    for (Incoming& message : in) message.from = ranks_[message.from];
    all_.exchange(out, in);
  }
  void poll() override { all_.poll(); }

 private:
  Transport& all_;
  const std::vector<int> ranks_;
  const int rank_;
};

}  // namespace maniple
