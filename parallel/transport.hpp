// A way to move bytes between the ranks of a group. It implements one operation, `exchange`; all collectives
// are written once, on top of it.
#pragma once

#include <cstddef>
#include <span>

namespace maniple {

struct Outgoing {
  int to = 0;
  std::span<const std::byte> bytes;
};

struct Incoming {
  int from = 0;
  std::span<std::byte> bytes;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;  // in the group
  virtual int size() const = 0;

  // Moves all messages at the same time. On return the outgoing bytes may be overwritten, and the incoming
  // bytes have arrived. No rank sends to itself. Messages between two ranks keep their order. Both sides know
  // the size of a message, and an empty one is not sent. Throws Error (fault) when the transport fails or a
  // message has another size.
  virtual void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) = 0;
  // In a wait for something else than messages: lets those of the process move on, and throws Error (fault)
  // where an exchange would, because another rank failed.
  virtual void poll() {}
};

}  // namespace maniple
