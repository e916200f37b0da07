// Host memory between the ranks of a group, by point-to-point messages. A wait backs off (Backoff), to leave
// cores to other ranks.
#pragma once

#include <parallel/mailbox.hpp>
#include <parallel/mpi/mpi_session.hpp>
#include <parallel/transport.hpp>

#include <vector>

namespace maniple {

class MpiTransport : public Transport {
 public:
  MpiTransport(UniqueComm comm, Backoff::Spin spin);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override;
  void poll() override;

  MPI_Comm comm() const { return comm_.get(); }

 private:
  bool advance();                                // continues the exchange; true: it is complete
  bool start_receive(const Incoming& expected);  // false: it has not arrived yet
  void let_transfers_end();

  UniqueComm comm_;
  Backoff::Spin spin_;
  int rank_ = 0;
  int size_ = 1;
  // Of the exchange in progress. An error leaves them as they are, since the job ends.
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Incoming> expected_;     // not yet arrived; by rank, in its order
  std::vector<std::byte> unexpected_;  // a message of another size
};

}  // namespace maniple
