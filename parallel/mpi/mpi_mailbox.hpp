// One end of a channel over MPI. Nothing here waits, and nothing but this end uses its communicator
// meanwhile.
#pragma once

#include <parallel/mailbox.hpp>
#include <parallel/mpi/mpi_session.hpp>

#include <deque>

namespace maniple {

class MpiMailbox : public Mailbox {
 public:
  // comm: outlives this. own: on rank 0, what the center and the leaf of this process say to each other; null
  // elsewhere.
  MpiMailbox(MPI_Comm comm, std::unique_ptr<Mailbox> own);
  // Gives messages on their way a second, then leaves them to MPI.
  ~MpiMailbox() override;

  bool try_send(int to, std::span<const std::byte> bytes) override;
  std::optional<Message> try_receive() override;
  bool flushed() override;

 private:
  struct Transfer {
    std::vector<std::byte> bytes;  // belongs to MPI until the request is done
    MPI_Request request = MPI_REQUEST_NULL;
  };
  // What is on its way to one peer, in order. The first one's request is in `oldest_` instead.
  struct Queue {
    std::deque<Transfer> transfers;
    size_t bytes = 0;
  };
  void drop_sent();
  void start_receive();

  MPI_Comm comm_;
  std::unique_ptr<Mailbox> own_;
  std::vector<Queue> queues_;        // one a peer
  std::vector<int> busy_;            // peers whose queues are not empty,
  std::vector<MPI_Request> oldest_;  // and the first request of each
  size_t window_ = 0;                // where in those two the next look begins
  std::optional<Transfer> receiving_;
  int sender_ = 0;  // of that
};

}  // namespace maniple
