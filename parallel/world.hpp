// All ranks of the job: who they are, where they run, and how groups and channels are made. Everything is
// made at start-up. Implementations: SelfWorld (one process without a launcher), MpiWorld, and threads in one
// process (tests).
#pragma once

#include <kernels/ops.hpp>
#include <parallel/collectives.hpp>
#include <parallel/communicator.hpp>
#include <parallel/mailbox.hpp>

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

// What carries tensors in GPU memory between ranks. automatic: NCCL where every rank of a group has a GPU of
// its own. Through the host several ranks may share one, and a broken fabric can be told from a broken
// program.
enum class GpuTransport : uint8_t { automatic, nccl, host };

// Ends this process after a fault: at once, from any thread, waiting for nobody. It must not return. Whoever
// owns the process gives it; no other way out is taken.
using FaultHandler = std::function<void(int exit_code)>;

class World {
 public:
  explicit World(FaultHandler on_fault = {}) : on_fault_(std::move(on_fault)) {}
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::vector<RankLocation>& locations() const = 0;  // one a rank
  // "Open MPI 4.1.4", and how GPU tensors travel in the groups made so far; for the banner.
  virtual std::string description() const = 0;

  // Collective over `ranks` (world ranks, this one among them, in group order). Groups that do not overlap
  // may be made at the same time. The group's tensors live on the device of `ops`, whose add() sums them;
  // both must outlive it.
  virtual std::unique_ptr<Communicator> make_group(std::span<const int> ranks, Ops& ops) = 0;
  // Loads what groups of GPUs will need, on this rank alone. Throws Error (preflight) where it is not
  // installed.
  virtual void open_gpu_transport() {}
  // Collective over all ranks.
  virtual Channel make_channel() = 0;

  // What moves host memory between any ranks while nothing else is sent: at start-up, on one thread.
  virtual Transport& transport() = 0;
  // Start-up agreement, collective over all ranks. Bytes of every rank, by rank.
  std::vector<std::string> all_gather_bytes(std::string_view bytes) {
    return maniple::all_gather_bytes(transport(), bytes);
  }
  void broadcast_bytes(std::string& bytes, int root) { maniple::broadcast_bytes(transport(), bytes, root); }
  void barrier() { maniple::barrier(transport()); }

  // From any thread, without waiting: a fault in a group that nobody who waits for the device would notice.
  virtual std::optional<std::string> fault() { return std::nullopt; }
  // Ends what groups run on the device, where it may stand still for ever: before memory that it uses is
  // given back on the way out of a fault.
  virtual void abort_groups() noexcept {}
  // Ends every process of the job, at once, from any thread.
  [[noreturn]] virtual void abort(int exit_code) { end_process(exit_code); }
  // Ends this one by the fault handler, without one by std::terminate.
  [[noreturn]] void end_process(int exit_code) const noexcept {
    on_fault_(exit_code);
    std::terminate();
  }

 private:
  const FaultHandler on_fault_;
};

}  // namespace maniple
