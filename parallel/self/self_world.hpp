// One process that no launcher started. It never calls MPI, whose singleton mode forks a
// daemon and costs 0.3 s.
#pragma once

#include <parallel/self/self_communicator.hpp>
#include <parallel/world.hpp>

namespace maniple {

class SelfWorld : public World {
 public:
  explicit SelfWorld(FaultHandler on_fault = {});

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::vector<RankLocation>& locations() const override { return locations_; }
  std::string description() const override { return "one process without MPI"; }
  Channel make_channel() override;
  Transport& transport() override { return transport_; }

 private:
  std::unique_ptr<StageTransport> make_stage_transport(std::optional<int> previous,
                                                       std::optional<int> next) override;
  std::unique_ptr<Communicator> form_group(std::span<const int> ranks, Ops& ops, AllReduce how) override;

  std::vector<RankLocation> locations_;
  SelfTransport transport_;
};

// The name of this machine; "unknown" if the system does not say.
std::string host_name();

}  // namespace maniple
