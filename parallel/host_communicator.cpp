#include <parallel/host_communicator.hpp>
#include <parallel/shared_communicator.hpp>
#include <parallel/staging_transport.hpp>

namespace maniple {

std::unique_ptr<Communicator> make_host_communicator(std::unique_ptr<Transport> transport, Ops& ops,
                                                     AllReduce how, Backoff::Spin spin) {
  if (!ops.device().shares_host_memory()) {
    transport = std::make_unique<StagingTransport>(std::move(transport), ops.device());
    how = AllReduce::messages;
  }
  if (how == AllReduce::messages || transport->size() > SharedCommunicator::most_ranks)
    return std::make_unique<TreeCommunicator>(std::move(transport), ops);
  SharedMemory memory = share_memory(*transport, SharedCommunicator::bytes_of_rank);
  if (!memory)
    return std::make_unique<TreeCommunicator>(std::move(transport), ops, "messages (no shared memory)");
  auto group = std::make_unique<SharedCommunicator>(std::move(transport), ops, std::move(memory), spin);
  group->choose_ways(how == AllReduce::automatic);
  return group;
}

}  // namespace maniple
