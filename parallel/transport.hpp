// What one way of moving bytes between the ranks of a group must be able to do: a single operation.
// Collectives are written over it once.
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

  // Moves all of it at the same time; when it returns, what went out may be overwritten and what came in is
  // there. Never to oneself. Messages between two ranks keep their order and both sides know their size;
  // empty ones are left out by both. Throws Error (fault) when the transport failed or a message has another
  // size.
  virtual void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) = 0;
};

}  // namespace maniple
