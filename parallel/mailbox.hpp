// Host bytes between rank 0 and the others, for control. No call blocks. One mailbox belongs to one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace maniple {

struct Message {
  int from = 0;
  std::vector<std::byte> bytes;
};

class Mailbox {
 public:
  virtual ~Mailbox() = default;
  // Takes a copy; false when too much to this receiver is still on its way (try again later). Messages
  // between two ends keep their order.
  virtual bool try_send(int to, std::span<const std::byte> bytes) = 0;
  // Throws Error (fault) when a message is larger than max_bytes or the transport failed.
  virtual std::optional<Message> try_receive() = 0;
  // True when everything handed over has left this process.
  virtual bool flushed() = 0;

  static constexpr size_t max_bytes = size_t{64} << 20;
  // How much may be on its way to one receiver: 64 messages, and max_bytes beyond the first.
  static bool has_room(size_t messages, size_t bytes, size_t more) {
    return messages == 0 || (messages < 64 && bytes + more <= max_bytes);
  }
};

// The ends of one channel. `center` sits on rank 0 (null elsewhere) and talks to all; `leaf` sits on every
// rank, rank 0 too, and talks to rank 0. On rank 0 the two ends may belong to two threads; what they say to
// each other goes through memory.
struct Channel {
  std::unique_ptr<Mailbox> center;
  std::unique_ptr<Mailbox> leaf;
};

// How a thread that waits passes its time: it spins for 50 us, yields up to 1 ms, then sleeps, at last 1 ms
// at a time, so that an idle node stays cool. Where ranks outnumber cores it must not spin: it would keep the
// one it waits for from running.
class Backoff {
 public:
  enum class Spin { yes, no };
  explicit Backoff(Spin spin = Spin::yes) : spins_(spin == Spin::yes) {}

  void pause();
  void reset() { waiting_ = false; }

 private:
  bool spins_;
  bool waiting_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace maniple
