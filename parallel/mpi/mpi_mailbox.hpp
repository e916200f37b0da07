// One end of a channel over MPI. Nothing here waits, and nothing but this end uses its communicator.
#pragma once

#include <parallel/mailbox.hpp>
#include <parallel/mpi/mpi_session.hpp>

namespace maniple {

class MpiMailbox : public Mailbox {
 public:
  // own: on rank 0, what the center and the leaf of this process say to each other; null elsewhere.
  MpiMailbox(UniqueComm comm, std::unique_ptr<Mailbox> own) : comm_(std::move(comm)), own_(std::move(own)) {}
  // Gives messages on their way a second, then leaves them to MPI.
  ~MpiMailbox() override;

  bool try_send(int to, std::span<const std::byte> bytes) override;
  std::optional<Message> try_receive() override;
  bool flushed() override;

 private:
  struct Transfer {
    int peer = 0;
    std::vector<std::byte> bytes;  // belongs to MPI until the request is done
    MPI_Request request = MPI_REQUEST_NULL;
  };
  static bool done(Transfer& transfer);
  void drop_sent();
  void start_receive();

  UniqueComm comm_;
  std::unique_ptr<Mailbox> own_;
  std::vector<Transfer> sending_;
  std::optional<Transfer> receiving_;
};

}  // namespace maniple
