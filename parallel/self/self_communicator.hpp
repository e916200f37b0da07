// A group of one rank, which sends nothing. With it, layers need no special case for a single rank.
#pragma once

#include <kernels/support/check.hpp>
#include <parallel/tree_communicator.hpp>

namespace maniple {

class SelfTransport : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    require(outgoing.empty() && incoming.empty(), "a group of one has nobody to talk to");
  }
};

class SelfCommunicator : public TreeCommunicator {
 public:
  explicit SelfCommunicator(Ops& ops) : TreeCommunicator(std::make_unique<SelfTransport>(), ops) {}
};

}  // namespace maniple
