#include <parallel/self/memory_mailbox.hpp>
#include <parallel/self/self_world.hpp>

#include <unistd.h>

#include <array>

namespace maniple {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

SelfWorld::SelfWorld(FaultHandler on_fault) : World(std::move(on_fault)), locations_{{.host = host_name()}} {}

std::unique_ptr<Communicator> SelfWorld::form_group(std::span<const int> ranks, Ops& ops, AllReduce /*how*/) {
  require(ranks.size() == 1 && ranks[0] == 0, "a group of ranks that do not exist");
  return std::make_unique<SelfCommunicator>(ops);
}

std::unique_ptr<StageTransport> SelfWorld::make_stage_transport(std::optional<int> /*previous*/,
                                                                std::optional<int> /*next*/) {
  fail(ExitCode::internal, "a pipeline of a single rank");
}

Channel SelfWorld::make_channel() {
  MemoryChannel channel = make_memory_channel(1);
  return {std::move(channel.root), std::move(channel.leaves[0])};
}

}  // namespace maniple
