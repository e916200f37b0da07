#include <kernels/support/check.hpp>
#include <parallel/mpi/mpi_mailbox.hpp>

#include <algorithm>
#include <array>
#include <exception>

namespace maniple {

namespace {

constexpr size_t max_tested = 64;  // requests per call, however many peers there are

}  // namespace

MpiMailbox::MpiMailbox(MPI_Comm comm, std::unique_ptr<Mailbox> own) : comm_(comm), own_(std::move(own)) {
  int peers = 0;
  check_mpi(MPI_Comm_size(comm_, &peers), "MPI_Comm_size");
  queues_.resize(static_cast<size_t>(peers));
}

MpiMailbox::~MpiMailbox() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  Backoff backoff(Backoff::Spin::no);
  try {
    for (drop_sent(); !busy_.empty() && std::uncaught_exceptions() == 0; drop_sent()) {
      if (std::chrono::steady_clock::now() > deadline) break;
      backoff.pause();
    }
  } catch (const Error&) {  // the transport is broken: the messages stay with MPI
  }
  // MPI may still read or write these bytes (a send cannot be cancelled), so they are never freed.
  if (!busy_.empty()) new std::vector<Queue>(std::move(queues_));
  if (receiving_) new Transfer(std::move(*receiving_));
}

bool MpiMailbox::try_send(int to, std::span<const std::byte> bytes) {
  require(bytes.size() <= max_bytes, "a message above the size limit");
  if (own_ && to == 0) return own_->try_send(to, bytes);
  Queue& queue = queues_.at(static_cast<size_t>(to));
  const auto has_room_now = [&] { return has_room(queue.transfers.size(), queue.bytes, bytes.size()); };
  if (!has_room_now()) drop_sent();
  if (!has_room_now()) return false;
  Transfer transfer{{bytes.begin(), bytes.end()}};
  check_mpi(MPI_Isend(transfer.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm_,
                      &transfer.request),
            "MPI_Isend");
  if (queue.transfers.empty()) {  // a small message usually leaves at once
    int is_done = 0;
    check_mpi(MPI_Test(&transfer.request, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
    if (is_done) return true;
    busy_.push_back(to);
    oldest_.push_back(transfer.request);
  }
  queue.bytes += bytes.size();
  queue.transfers.push_back(std::move(transfer));
  return true;
}

std::optional<Message> MpiMailbox::try_receive() {
  if (own_) {
    if (std::optional<Message> message = own_->try_receive()) return message;
  }
  if (!receiving_) start_receive();
  int is_done = 0;
  if (receiving_) check_mpi(MPI_Test(&receiving_->request, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
  if (!is_done) {
    drop_sent();
    return std::nullopt;
  }
  Message message{sender_, std::move(receiving_->bytes)};
  receiving_.reset();
  return message;
}

bool MpiMailbox::flushed() {
  drop_sent();
  return busy_.empty() && (!own_ || own_->flushed());
}

// Tests the oldest message of up to max_tested peers, again while any of them has left. The next call tests
// other peers. The cost of a call does not grow with the number of messages in flight.
void MpiMailbox::drop_sent() {
  for (int done = 1; done > 0 && !busy_.empty();) {
    if (window_ >= busy_.size()) window_ = 0;
    const size_t count = std::min(max_tested, busy_.size() - window_);
    std::array<int, max_tested> which{};
    std::array<MPI_Status, max_tested> statuses{};
    check_mpi(MPI_Testsome(static_cast<int>(count), &oldest_[window_], &done, which.data(), statuses.data()),
              "MPI_Testsome", statuses);
    for (int i = 0; i < done; ++i) {
      const size_t place = window_ + static_cast<size_t>(which[static_cast<size_t>(i)]);
      Queue& queue = queues_[static_cast<size_t>(busy_[place])];
      queue.bytes -= queue.transfers.front().bytes.size();
      queue.transfers.pop_front();
      if (!queue.transfers.empty()) oldest_[place] = queue.transfers.front().request;
    }
    if (done > 0) {
      std::erase_if(busy_, [&](int peer) { return queues_[static_cast<size_t>(peer)].transfers.empty(); });
      std::erase(oldest_, MPI_REQUEST_NULL);
    }
  }
  window_ += max_tested;
}

// A matched probe reserves the message for this receive: its size is known before memory is allocated.
void MpiMailbox::start_receive() {
  int found = 0, bytes = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  check_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &message, &status), "MPI_Improbe");
  if (!found) return;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (bytes < 0 || static_cast<size_t>(bytes) > max_bytes)
    fail(ExitCode::fault, "rank {} sent a message of {} bytes, above the limit of {}", status.MPI_SOURCE,
         bytes, max_bytes + 0);
  sender_ = status.MPI_SOURCE;
  Transfer& transfer = receiving_.emplace(Transfer{});
  transfer.bytes.resize(bytes);
  check_mpi(MPI_Imrecv(transfer.bytes.data(), bytes, MPI_BYTE, &message, &transfer.request), "MPI_Imrecv");
}

}  // namespace maniple
