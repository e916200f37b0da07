// Control messages (host bytes) between rank 0 and the other ranks. No call blocks. Only one thread
// may use a mailbox.
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
  // Sends a copy of the bytes. False: too much is in flight to this receiver; try again later. Messages
  // between two ends keep their order.
  virtual bool try_send(int to, std::span<const std::byte> bytes) = 0;
  // Absent: no message has arrived. Throws Error (fault) when a message is larger than max_bytes or the
  // transport fails.
  virtual std::optional<Message> try_receive() = 0;
  // True when all messages that try_send accepted have left this process.
  virtual bool flushed() = 0;

  static constexpr size_t max_bytes = size_t{64} << 20;  // of one message
  // At most 64 messages, of max_bytes together, are in flight to one receiver.
  static bool has_room(size_t messages, size_t bytes, size_t more) {
    return messages == 0 || (messages < 64 && bytes + more <= max_bytes);
  }
};

// The ends of one channel. `root` is on rank 0 (null elsewhere) and exchanges messages with every rank;
// `leaf` is on every rank, rank 0 too, and exchanges messages with rank 0. On rank 0 two threads may use the
// two ends, whose messages to each other go through memory.
struct Channel {
  std::unique_ptr<Mailbox> root;
  std::unique_ptr<Mailbox> leaf;
};

// For a loop that polls: pause() returns at once for 50 us (spins), yields up to 1 ms, then sleeps, at most
// 1 ms at a time. Spin::no is for nodes with more ranks than cores: a spinning rank takes the core that the
// rank it waits for needs.
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
