#include <kernels/support/check.hpp>
#include <parallel/mailbox.hpp>
#include <parallel/mpi/mpi_stage_transport.hpp>

#include <chrono>
#include <exception>
#include <limits>

namespace maniple {

MpiStageTransport::~MpiStageTransport() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  Backoff backoff(Backoff::Spin::no);
  for (int done = 0; std::uncaught_exceptions() == 0 && std::chrono::steady_clock::now() < deadline;) {
    MPI_Testall(static_cast<int>(slots), sends_.data(), &done, MPI_STATUSES_IGNORE);
    if (done) return;
    backoff.pause();
  }
}

void MpiStageTransport::send(size_t slot, std::span<const std::byte> message) {
  require(std::cmp_less_equal(message.size(), std::numeric_limits<int>::max()), "MPI counts are int");
  check_mpi(MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, next_, tag, comm_.get(),
                      &sends_[slot]),
            "MPI_Isend");
}

bool MpiStageTransport::sent(size_t slot) {
  int done = 0;
  check_mpi(MPI_Test(&sends_[slot], &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

// A matched probe tells the size before memory is given away (parallel/README.md).
std::optional<size_t> MpiStageTransport::received(size_t slot) {
  Receive& receive = receives_[slot];
  int done = 0;
  if (receive.bytes < 0) {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    check_mpi(MPI_Improbe(previous_, tag, comm_.get(), &done, &message, &status), "MPI_Improbe");
    if (!done) return std::nullopt;
    MPI_Get_count(&status, MPI_BYTE, &receive.bytes);
    if (std::cmp_greater(receive.bytes, receive.memory.size()))
      fail(ExitCode::fault, "rank {} sent {} bytes of rows, and the largest step has {}", previous_,
           receive.bytes, receive.memory.size());
    check_mpi(MPI_Imrecv(receive.memory.data(), receive.bytes, MPI_BYTE, &message, &receive.request),
              "MPI_Imrecv");
  }
  check_mpi(MPI_Test(&receive.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done ? std::optional(static_cast<size_t>(receive.bytes)) : std::nullopt;
}

}  // namespace maniple
