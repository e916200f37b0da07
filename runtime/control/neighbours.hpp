// The ranks of a node watch each other. The end of a process closes its socket, which its neighbours notice
// at once (before its parent does: a launcher that ends the others comes later), and where it was stays
// readable in shared memory. It needs no rights and no process numbers, so that ranks in containers see each
// other too.
#pragma once

#include <kernels/support/file_descriptor.hpp>
#include <parallel/world.hpp>
#include <runtime/control/pulse.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

// A Pulse that other processes can map.
struct UnmapPulse {
  void operator()(Pulse* pulse) const;
};
using SharedPulse = std::unique_ptr<Pulse, UnmapPulse>;

class Neighbours {
 public:
  // Collective. Neighbours that cannot be reached are not watched.
  explicit Neighbours(World& world);
  // Says goodbye.
  ~Neighbours();

  Pulse& pulse() { return *pulse_; }  // of this rank
  // Nothing: not watched.
  const Pulse* pulse_of(int rank) const;

  // From any thread. Returns a neighbour that died without a goodbye, each once; nothing when the time is
  // over or after wake().
  std::optional<int> wait(std::chrono::milliseconds timeout);
  void wake();

  // One that is there and has not come to `phase`.
  std::optional<int> behind(Phase phase) const;
  // Says goodbye, once nobody calls wait() any more and MPI has ended: then a process that stands still is
  // waited for by the launcher alone, and for ever. Returns when all others have said goodbye (to the node's
  // lowest rank: have ended), or one that has not within `limit`, in which a standstill of this process does
  // not count.
  std::optional<int> leave(std::chrono::milliseconds limit);

  // One rank of the node speaks of a fault: true for the first that asks, and for one that asks for the word
  // of a dead one which had not spoken.
  bool takes_the_word(int from = Pulse::nobody);
  void has_spoken() { first_->speaker = Pulse::has_spoken; }

 private:
  struct Neighbour {
    int rank = 0;
    SharedPulse pulse;
    FileDescriptor socket;  // none: it has left
  };

  static bool is_there(const Neighbour& other);
  // The rank of one that is there and of whom that holds.
  template <typename Predicate>
  std::optional<int> find(Predicate holds) const;

  int rank_;
  SharedPulse pulse_;
  FileDescriptor listener_;
  FileDescriptor waker_;
  std::mutex mutex_;  // of the sockets
  std::vector<Neighbour> others_;
  Pulse* first_ = nullptr;  // of the node's lowest rank that is known
};

}  // namespace maniple
