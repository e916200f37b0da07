#include <kernels/support/check.hpp>
#include <parallel/mpi/mpi_transport.hpp>

#include <algorithm>

namespace maniple {

namespace {

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

// Receives a message only after its size is known: Open MPI 4 writes the whole of a large message, however
// small the buffer is.
void MpiTransport::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  requests_.clear();
  expected_.clear();
  for (const Incoming& message : incoming)
    for_each_piece(message.bytes, [&](std::span<std::byte> piece) {
      expected_.push_back({message.from, piece});
    });
  std::ranges::stable_sort(expected_, {}, &Incoming::from);
  for (const Outgoing& message : outgoing) {
    for_each_piece(message.bytes, [&](std::span<const std::byte> piece) {
      check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, message.to, tag,
                          comm_.get(), &requests_.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Isend");
    });
  }
  Backoff backoff(spin_);
  while (!advance()) backoff.pause();
}

void MpiTransport::poll() {
  int found = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_.get(), &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

bool MpiTransport::advance() {
  int waiting_for = -1;  // a later message of the same rank must not be taken for it
  std::erase_if(expected_, [&](const Incoming& message) {
    if (message.from == waiting_for) return false;
    const bool came = start_receive(message);
    if (!came) waiting_for = message.from;
    return came;
  });
  if (!expected_.empty()) return false;
  int done = 0;
  statuses_.resize(requests_.size());
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data()),
            "MPI_Testall", statuses_);
  return done != 0;
}

bool MpiTransport::start_receive(const Incoming& expected) {
  int found = 0, bytes = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  check_mpi(MPI_Improbe(expected.from, tag, comm_.get(), &found, &message, &status), "MPI_Improbe");
  if (!found) return false;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (static_cast<size_t>(bytes) != expected.bytes.size()) {
    unexpected_.resize(static_cast<size_t>(bytes));
    MPI_Imrecv(unexpected_.data(), bytes, MPI_BYTE, &message, &requests_.emplace_back(MPI_REQUEST_NULL));
    let_transfers_end();
    fail(ExitCode::fault, "rank {} of a group got {} bytes from rank {} and expected {}", rank_, bytes,
         expected.from, expected.bytes.size());
  }
  check_mpi(
      MPI_Imrecv(expected.bytes.data(), bytes, MPI_BYTE, &message, &requests_.emplace_back(MPI_REQUEST_NULL)),
      "MPI_Imrecv");
  return true;
}

// The transfers use memory that its owner may soon free. The wait has a deadline: another rank may have died.
void MpiTransport::let_transfers_end() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  Backoff backoff(Backoff::Spin::no);
  for (int done = 0; done == 0 && std::chrono::steady_clock::now() < deadline; backoff.pause())
    if (MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE)) return;
}

}  // namespace maniple
