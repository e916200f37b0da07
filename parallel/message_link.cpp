#include <parallel/mailbox.hpp>
#include <parallel/message_link.hpp>

#include <chrono>
#include <cstring>
#include <utility>

namespace maniple {

// In front of the rows: both ends check that they speak of the same step of the same plan.
struct MessageLink::Header {
  static constexpr uint32_t magic_number = 0x47545350, current = 1;  // "PSTG"

  uint32_t magic = magic_number;
  uint32_t version = current;
  uint64_t step = 0;
  int64_t rows = 0;
  uint64_t state_hash = 0;
  std::array<uint64_t, 4> unused = {};

  bool operator==(const Header&) const = default;
};

MessageLink::MessageLink(std::unique_ptr<StageTransport> transport, std::string name, bool first, bool last,
                         const StageRows& rows, Device& device, std::atomic<bool>& waits)
    : name_(std::move(name)), rows_(rows), device_(device), waits_(waits), transport_(std::move(transport)) {
  static_assert(sizeof(Header) == 64, "rows begin at a cache line");
  const Shape bytes{static_cast<int64_t>(sizeof(Header)) +
                    rows.most * rows.width * static_cast<int64_t>(size_of(rows.dtype))};
  for (size_t slot = 0; slot < StageTransport::slots; ++slot) {
    if (!last) out_[slot] = Tensor(host_, DType::uint8, bytes);
    if (first) continue;
    in_[slot] = Tensor(host_, DType::uint8, bytes);
    transport_->receive(slot, bytes_of(in_[slot], rows.most));
  }
  if (!first && !device.shares_host_memory())
    on_device_ = Tensor(device, rows.dtype, {rows.most, rows.width});
}

std::span<std::byte> MessageLink::bytes_of(Tensor& slot, int64_t rows) const {
  const auto row = static_cast<size_t>(rows_.width) * size_of(rows_.dtype);
  return {slot.view().data, sizeof(Header) + static_cast<size_t>(rows) * row};
}

double MessageLink::wait_until(const auto& done) {
  if (done()) return 0;
  const auto start = std::chrono::steady_clock::now();
  waits_ = true;
  for (Backoff backoff(Backoff::Spin::no); !done();) backoff.pause();
  waits_ = false;
  const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  seconds_ += waited;
  return waited;
}

void MessageLink::send(const StageStep& step, ConstTensorView rows) {
  require(rows.shape.rank() == 2 && rows.shape[0] <= rows_.most && rows.shape[1] == rows_.width &&
              rows.dtype == rows_.dtype,
          "rows for the next stage");
  const size_t slot = sends_++ % StageTransport::slots;
  const double waited = wait_until([&] { return transport_->sent(slot); });
  const std::span<std::byte> message = bytes_of(out_[slot], rows.shape[0]);
  const Header header{.step = step.step, .rows = rows.shape[0], .state_hash = step.state_hash};
  std::memcpy(message.data(), &header, sizeof header);
  device_.download(message.data() + sizeof header, rows.data, rows.bytes());
  transport_->send(slot, message);
  counts_.add(CollectiveOp::send, message.size(), waited);
}

TensorView MessageLink::take(const StageStep& step, int64_t rows) {
  const size_t slot = takes_ % StageTransport::slots;
  std::optional<size_t> bytes;
  const double waited = wait_until([&] { return (bytes = transport_->received(slot)).has_value(); });
  counts_.add(CollectiveOp::receive, *bytes, waited);
  const std::span<std::byte> expected = bytes_of(in_[slot], rows);
  const Header due{.step = step.step, .rows = rows, .state_hash = step.state_hash};
  Header header{.magic = 0};
  if (*bytes >= sizeof header) std::memcpy(&header, expected.data(), sizeof header);
  if (header != due || *bytes != expected.size())
    throw Error(ExitCode::fault,
                fmt::format("{} got rows of step {} ({}) and expected {} ({}){}", name_, header.step,
                            header.rows, step.step, rows,
                            header.step == step.step && header.rows == rows
                                ? fmt::format(": {} bytes of format {}, state {:016x} here {:016x}", *bytes,
                                              header.version, header.state_hash, step.state_hash)
                                : ""),
                "this rank would compute something else than rank 0 planned",
                "restart the job; finished work is kept");
  std::byte* const taken = expected.data() + sizeof header;
  if (device_.shares_host_memory()) return {taken, rows_.dtype, {rows, rows_.width}};
  const TensorView copy = on_device_.view().rows(0, rows);
  device_.upload(copy.data, taken, copy.bytes());
  return copy;
}

void MessageLink::release() {
  const size_t slot = takes_++ % StageTransport::slots;
  transport_->receive(slot, bytes_of(in_[slot], rows_.most));
}

// In order: during a step the message of the next one may come, to the other slot.
void MessageLink::poll() {
  if (!in_[0].view().empty() && transport_->received(takes_ % StageTransport::slots))
    transport_->received((takes_ + 1) % StageTransport::slots);
  if (sends_ > 0) transport_->sent((sends_ - 1) % StageTransport::slots);
}

}  // namespace maniple
