#include <kernels/support/check.hpp>
#include <parallel/mpi/mpi_mailbox.hpp>

#include <exception>

namespace maniple {

namespace {

constexpr int tag = 0;

}  // namespace

MpiMailbox::~MpiMailbox() {
  if (!comm_) return;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  Backoff backoff(Backoff::Spin::no);
  try {
    for (drop_sent(); !sending_.empty() && std::uncaught_exceptions() == 0; drop_sent()) {
      if (std::chrono::steady_clock::now() > deadline) break;
      backoff.pause();
    }
  } catch (const Error&) {  // the transport is broken; what it holds is left to it
  }
  // MPI may still read or write these bytes (a send cannot be taken back), so they are never freed.
  if (!sending_.empty()) new std::vector<Transfer>(std::move(sending_));
  if (receiving_) new Transfer(std::move(*receiving_));
}

bool MpiMailbox::try_send(int to, std::span<const std::byte> bytes) {
  require(bytes.size() <= max_bytes, "a message above the size limit");
  if (own_ && to == 0) return own_->try_send(to, bytes);
  drop_sent();
  size_t messages = 0, pending = 0;
  for (const Transfer& transfer : sending_) {
    if (transfer.peer != to) continue;
    ++messages;
    pending += transfer.bytes.size();
  }
  if (!has_room(messages, pending, bytes.size())) return false;
  Transfer& transfer = sending_.emplace_back(Transfer{to, {bytes.begin(), bytes.end()}});
  check_mpi(MPI_Isend(transfer.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm_.get(),
                      &transfer.request),
            "MPI_Isend");
  return true;
}

std::optional<Message> MpiMailbox::try_receive() {
  drop_sent();
  if (own_) {
    if (std::optional<Message> message = own_->try_receive()) return message;
  }
  if (!receiving_) start_receive();
  if (!receiving_ || !done(*receiving_)) return std::nullopt;
  Message message{receiving_->peer, std::move(receiving_->bytes)};
  receiving_.reset();
  return message;
}

bool MpiMailbox::flushed() {
  drop_sent();
  return sending_.empty() && (!own_ || own_->flushed());
}

bool MpiMailbox::done(Transfer& transfer) {
  int is_done = 0;
  check_mpi(MPI_Test(&transfer.request, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
  return is_done != 0;
}

void MpiMailbox::drop_sent() {
  std::erase_if(sending_, [](Transfer& transfer) { return done(transfer); });
}

// A matched probe takes the message out of sight of any other receive, so its size is known before memory is
// taken.
void MpiMailbox::start_receive() {
  int found = 0, bytes = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  check_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_.get(), &found, &message, &status), "MPI_Improbe");
  if (!found) return;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (bytes < 0 || static_cast<size_t>(bytes) > max_bytes)
    fail(ExitCode::fault, "rank {} sent a message of {} bytes, above the limit of {}", status.MPI_SOURCE,
         bytes, max_bytes + 0);
  Transfer& transfer = receiving_.emplace(Transfer{});
  transfer.peer = status.MPI_SOURCE;
  transfer.bytes.resize(bytes);
  check_mpi(MPI_Imrecv(transfer.bytes.data(), bytes, MPI_BYTE, &message, &transfer.request), "MPI_Imrecv");
}

}  // namespace maniple
