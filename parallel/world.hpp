// All ranks of the job: their number, the places where they run, the groups and channels between them.
// Groups and channels are made at start-up. Implementations: SelfWorld (one process without a launcher),
// MpiWorld, and threads in one process (tests).
#pragma once

#include <kernels/ops.hpp>
#include <parallel/collectives.hpp>
#include <parallel/communicator.hpp>
#include <parallel/host_communicator.hpp>
#include <parallel/mailbox.hpp>
#include <parallel/message_link.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace maniple {

struct RankLocation {
  std::string host;
  int node = 0;        // index of the node, in order of its lowest rank
  int local_rank = 0;  // among the ranks of the node
  int local_size = 1;
};

// What carries tensors in GPU memory between the ranks of a group. automatic: NCCL where every rank of the
// group has its own GPU, else host. With host, ranks may share a GPU; it also helps to tell a broken fabric
// from a broken program.
enum class GpuTransport : uint8_t { automatic, nccl, host };

// What NCCL is to do besides.
struct NcclSwitches {
  bool windows = false;          // sums of tensor groups lie in registered memory, where it can
  bool orders_launches = false;  // NCCL_LAUNCH_ORDER_IMPLICIT is 1 in this process
};

// Ends this process after a fault, at once, from any thread, without waiting for other ranks. It must not
// return. The owner of the process provides it.
using FaultHandler = std::function<void(int exit_code)>;

// A rank's place in a pipeline.
struct StagePlace {
  std::string name;                   // of its stage, for messages: "stage 1 of replica 0"
  std::optional<int> previous, next;  // world ranks of the stages before and after; absent at the ends
};

class World {
 public:
  explicit World(FaultHandler on_fault = {}) : on_fault_(std::move(on_fault)) {}
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::vector<RankLocation>& locations() const = 0;  // by rank
  // "Open MPI 4.1.4", and how GPU tensors travel in the groups made so far; for the banner.
  virtual std::string description() const = 0;

  // Collective over `ranks`: world ranks in group order, this one among them. Disjoint groups may be made at
  // the same time. The group's tensors live on the device of `ops`, whose add() sums them. The world, the
  // device and `ops` must outlive the group.
  // `how`: what adds on the CPUs of a node; between nodes it is messages.
  std::unique_ptr<Communicator> make_group(std::span<const int> ranks, Ops& ops,
                                           AllReduce how = AllReduce::messages) {
    const auto elsewhere = [&](int rank) { return locations()[rank].node != locations()[ranks[0]].node; };
    return form_group(ranks, ops, std::ranges::any_of(ranks, elsewhere) ? AllReduce::messages : how);
  }
  // Loads the library that groups of GPUs need. Not collective. Throws Error (preflight) if
  // it is not installed.
  virtual void open_gpu_transport() {}
  // Collective over all ranks.
  virtual Channel make_channel() = 0;
  // Collective over all ranks of a job with a pipeline, at start-up. `waits`: as in MessageLink.
  virtual std::unique_ptr<StageLink> make_stage_link(const StagePlace& place, const StageRows& rows,
                                                     Device& device, std::atomic<bool>& waits) {
    return std::make_unique<MessageLink>(make_stage_transport(place.previous, place.next), place.name,
                                         !place.previous, !place.next, rows, device, waits);
  }

  // Moves host memory between any ranks. Only for start-up: one thread, and no other traffic meanwhile.
  virtual Transport& transport() = 0;
  // Collective over all ranks, at start-up. all_gather_bytes returns the bytes of every rank, by rank.
  std::vector<std::string> all_gather_bytes(std::string_view bytes) {
    return maniple::all_gather_bytes(transport(), bytes);
  }
  void broadcast_bytes(std::string& bytes, int root) { maniple::broadcast_bytes(transport(), bytes, root); }
  void barrier() { maniple::barrier(transport()); }

  // A fault in a group, if there is one: a rank that waits for its device does not notice it. From any
  // thread; never waits.
  virtual std::optional<std::string> fault() { return std::nullopt; }
  // Aborts the groups' work on the device, which may hang after a fault. Call it before that
  // work's memory is freed.
  virtual void abort_groups() noexcept {}
  // Ends every process of the job, at once, from any thread.
  [[noreturn]] virtual void abort(int exit_code) { end_process(exit_code); }
  // Ends this process through the fault handler; without a handler, through std::terminate.
  [[noreturn]] void end_process(int exit_code) const noexcept {
    on_fault_(exit_code);
    std::terminate();
  }

 protected:
  virtual std::unique_ptr<StageTransport> make_stage_transport(std::optional<int> previous,
                                                               std::optional<int> next) = 0;
  virtual std::unique_ptr<Communicator> form_group(std::span<const int> ranks, Ops& ops, AllReduce how) = 0;

 private:
  const FaultHandler on_fault_;
};

}  // namespace maniple
