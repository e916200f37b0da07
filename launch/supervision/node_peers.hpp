// The ranks of a node watch each other. When a process ends, the kernel closes its socket, and its
// peers notice at once, before the launcher ends them. Its last activity stays readable in shared
// memory. This needs no rights and no process numbers, so it works for ranks in containers too.
#pragma once

#include <kernels/support/file_descriptor.hpp>
#include <parallel/world.hpp>
#include <runtime/control/rank_activity.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace maniple {

class NodePeers {
 public:
  // Collective. Peers that cannot be reached are not watched.
  explicit NodePeers(World& world);
  // Says goodbye.
  ~NodePeers();

  RankActivity& activity() { return *activity_; }  // of this rank
  // Null: not watched.
  const RankActivity* activity_of(int rank) const;

  // From any thread. Returns a peer that died without a goodbye,
  // each once; nothing after the timeout or after wake().
  std::optional<int> wait(std::chrono::milliseconds timeout);
  void wake();

  // A peer that is alive and has not reached `phase`.
  std::optional<int> behind(Phase phase) const;
  // Says goodbye. Call it when MPI has ended and no thread calls wait() any more. From then
  // on only the launcher would wait for a stopped process, and for ever. So this returns when
  // all peers have said goodbye (on the node's lowest rank: have ended), or returns a peer
  // that has not within `limit`. Time in which this process itself is stopped does not count.
  std::optional<int> leave(std::chrono::milliseconds limit);

  // One rank of a node reports a fault: true for the first that claims it, and
  // for a rank that takes over `from` a rank that died before it reported.
  bool claim_fault_report(int from = RankActivity::nobody);
  void mark_fault_reported() { first_->fault_reporter = RankActivity::reported; }

 private:
  struct Peer {
    int rank = 0;
    std::shared_ptr<RankActivity> activity;
    FileDescriptor socket;  // none: it has ended
  };

  static bool is_alive(const Peer& other);
  // The rank of a living peer that satisfies `holds`.
  template <typename Predicate>
  std::optional<int> find(Predicate holds) const;

  int rank_;
  std::shared_ptr<RankActivity> activity_;  // mapped by other processes
  FileDescriptor listener_;
  FileDescriptor waker_;
  std::mutex mutex_;  // guards the sockets
  std::vector<Peer> others_;
  RankActivity* first_ = nullptr;  // of the lowest known rank of the node
};

}  // namespace maniple
