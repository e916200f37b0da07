#include <kernels/support/check.hpp>
#include <parallel/mpi/mpi_transport.hpp>

#include <algorithm>

namespace maniple {

namespace {

constexpr int tag = 0;
constexpr size_t largest_piece = size_t{1} << 30;  // MPI counts are int

// f(piece) for each piece of bytes that one MPI call can take.
void for_each_piece(auto bytes, auto f) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(largest_piece, bytes.size())))
    f(bytes.first(std::min(largest_piece, bytes.size())));
}

}  // namespace

MpiTransport::MpiTransport(UniqueComm comm, Backoff::Spin spin) : comm_(std::move(comm)), spin_(spin) {
  check_mpi(MPI_Comm_rank(comm_.get(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_.get(), &size_), "MPI_Comm_size");
}

void MpiTransport::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  requests_.clear();
  expected_.clear();
  for (const Incoming& message : incoming) {
    for_each_piece(message.bytes, [&](std::span<std::byte> piece) {
      expected_.push_back(static_cast<int>(piece.size()));
      check_mpi(MPI_Irecv(piece.data(), expected_.back(), MPI_BYTE, message.from, tag, comm_.get(),
                          &requests_.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Irecv");
    });
  }
  for (const Outgoing& message : outgoing) {
    for_each_piece(message.bytes, [&](std::span<const std::byte> piece) {
      check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, message.to, tag,
                          comm_.get(), &requests_.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Isend");
    });
  }
  wait_for_all();
  for (size_t i = 0; i < expected_.size(); ++i) {
    int received = 0;
    MPI_Get_count(&statuses_[i], MPI_BYTE, &received);
    if (received != expected_[i])
      fail(ExitCode::fault, "rank {} of a group got {} bytes from rank {} and expected {}", rank_, received,
           statuses_[i].MPI_SOURCE, expected_[i]);
  }
}

void MpiTransport::wait_for_all() {
  statuses_.resize(requests_.size());
  Backoff backoff(spin_);
  for (;;) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data()),
              "MPI_Testall", statuses_);
    if (done) return;
    backoff.pause();
  }
}

}  // namespace maniple
