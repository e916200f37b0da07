// Messages between the stages of a pipeline, over a communicator of their own.
#pragma once

#include <parallel/message_link.hpp>
#include <parallel/mpi/mpi_session.hpp>

#include <array>

namespace maniple {

class MpiStageTransport final : public StageTransport {
 public:
  // previous, next: ranks of `comm`, which carries nothing else; negative: there is no such stage.
  MpiStageTransport(UniqueComm comm, int previous, int next)
      : comm_(std::move(comm)), previous_(previous), next_(next) {
    sends_.fill(MPI_REQUEST_NULL);
  }
  // Waits at most a second for messages in flight.
  ~MpiStageTransport() override;

  void send(size_t slot, std::span<const std::byte> message) override;
  bool sent(size_t slot) override;
  void receive(size_t slot, std::span<std::byte> memory) override { receives_[slot] = {.memory = memory}; }
  std::optional<size_t> received(size_t slot) override;

 private:
  struct Receive {
    std::span<std::byte> memory = {};
    MPI_Request request = MPI_REQUEST_NULL;
    int bytes = -1;  // of the message; negative: none has come
  };

  UniqueComm comm_;
  int previous_, next_;
  std::array<MPI_Request, slots> sends_;
  std::array<Receive, slots> receives_;
};

}  // namespace maniple
