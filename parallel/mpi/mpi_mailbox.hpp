// One end of a channel over MPI. No call waits. While it lives, nothing else uses its communicator.
#pragma once

#include <parallel/mailbox.hpp>
#include <parallel/mpi/mpi_session.hpp>

#include <deque>

namespace maniple {

class MpiMailbox : public Mailbox {
 public:
  // comm: must outlive this. own: on rank 0, carries the messages between the root and the leaf of this
  // process; null elsewhere.
  MpiMailbox(MPI_Comm comm, std::unique_ptr<Mailbox> own);
  // Waits at most a second for messages in flight, then leaves their memory to MPI.
  ~MpiMailbox() override;

  bool try_send(int to, std::span<const std::byte> bytes) override;
  std::optional<Message> try_receive() override;
  bool flushed() override;

 private:
  struct Transfer {
    std::vector<std::byte> bytes;  // belongs to MPI until the request is done
    MPI_Request request = MPI_REQUEST_NULL;
  };
  // The messages in flight to one peer, in order. The request of the first is in `oldest_` instead.
  struct Queue {
    std::deque<Transfer> transfers;
    size_t bytes = 0;
  };
  void drop_sent();
  void start_receive();

  MPI_Comm comm_;
  std::unique_ptr<Mailbox> own_;
  std::vector<Queue> queues_;        // by peer
  std::vector<int> busy_;            // peers whose queues are not empty
  std::vector<MPI_Request> oldest_;  // the first request of each busy peer
  size_t window_ = 0;                // index in busy_ and oldest_ where the next test begins
  std::optional<Transfer> receiving_;
  int sender_ = 0;  // of receiving_
};

}  // namespace maniple
