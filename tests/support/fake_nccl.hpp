// NCCL without GPUs, in one implementation for both kinds of tests: ranks that are threads of one process
// (unit tests), and ranks that are processes of one machine (tests/rehearsal wraps it into libnccl.so.2).
// Ranks leave each other files in a folder named after the communicator's id. As with non-blocking
// communicators, calls answer in_progress and comm_state() tells the rest; a group starts at its end; calls
// run in the order of the stream or of the graph that recorded them; one that misses a rank waits until it is
// aborted. Stricter than NCCL: calls that do not match are an error where NCCL would hang, and among threads
// so is an abort for the other ranks. Sums follow the tree, so that the contract of Communicator holds to the
// bit.
#pragma once

#include <kernels/cpu/cpu_device.hpp>
#include <kernels/reference/reference_ops.hpp>
#include <parallel/nccl/nccl_api.hpp>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace maniple {

class FakeNccl : public NcclApi {
 public:
  static constexpr NcclResult invalid_argument{4}, invalid_usage{5}, remote_error{6};

  // A part of a call: runs once can_run says so, after the parts before it in its stream.
  struct Operation {
    std::function<void()> run;
    std::function<bool()> can_run = [] { return true; };
  };
  using Enqueue = std::function<void(NcclStream, Operation)>;

  // Without `enqueue` there are no streams: operations run when comm_state() is asked.
  explicit FakeNccl(Enqueue enqueue = {}, std::filesystem::path folder = "/dev/shm");
  ~FakeNccl() override;

  size_t ranks_of(NcclComm comm) const;  // ranks

  // --- what goes wrong ---
  void refuse(const std::string& call, NcclResult result);  // "init": every such call fails at once
  void break_in_background(NcclResult result);              // all communicators that there are
  void let_join(int ranks);                                 // those from here on never arrive
  void let_finalize_end(bool ends);
  void let_abort_end(bool ends);  // as while captured graphs hold the communicator
  // "open", "draw", "init 1", "finalize 1", "destroy 1", "abort 1", "open window 1", "sum in window 1", "close window 1": rank in its group.
  std::vector<std::string> log() const;

  void open() override;
  std::optional<Gpu> gpu_of(
      Device& device) override;  // its description is the UUID; in "GPU-a/1" GPU-a is the card
  void set_version(int version) { version_ = version; }
  // Without streams calls run at once: a lane has nothing to order.
  std::unique_ptr<NcclLane> make_lane(Device& device) override;
  int version() override { return version_; }
  std::string describe(NcclResult result, NcclComm comm) override;
  NcclResult draw_id(NcclId& id) override;
  NcclResult comm_init(NcclComm& comm, int size, const NcclId& id, int rank, int most_blocks) override;
  NcclResult comm_state(NcclComm comm, NcclResult& state) override;
  NcclResult comm_finalize(NcclComm comm) override;
  NcclResult comm_destroy(NcclComm comm) override;
  NcclResult comm_abort(NcclComm comm) override;
  NcclResult allocate(std::byte*& memory, size_t bytes) override;
  NcclResult release(std::byte* memory) override;
  NcclResult open_window(NcclWindow& window, TensorView memory, NcclComm comm) override;
  NcclResult close_window(NcclWindow window, NcclComm comm) override;
  NcclResult group_start() override;
  NcclResult group_end() override;
  NcclResult all_reduce(TensorView x, NcclComm comm, NcclStream stream) override;
  NcclResult all_gather(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) override;
  NcclResult reduce_scatter(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) override;
  NcclResult reduce(ConstTensorView in, TensorView out, int root, NcclComm comm, NcclStream stream) override;
  NcclResult broadcast(ConstTensorView in, TensorView out, int root, NcclComm comm,
                       NcclStream stream) override;
  NcclResult send(ConstTensorView x, int to, NcclComm comm, NcclStream stream) override;
  NcclResult receive(TensorView x, int from, NcclComm comm, NcclStream stream) override;

  class FileExchange;
  using Bytes = std::vector<std::byte>;
  enum class Stage { send, collective, receive };  // the order in which a group starts its calls
  struct Call {
    Stage stage;
    NcclComm comm;
    NcclStream stream;
    std::vector<Operation> operations;
  };

 private:
  NcclResult begin(const std::string& call, NcclComm comm);
  NcclResult submit(Call call);
  void start(const Call& call);
  // Every rank brings `in` and takes the bytes of all ranks, by rank. What the ranks call must match in name,
  // type, root and size.
  NcclResult collective(const std::string& name, ConstTensorView in, int root, NcclComm comm,
                        NcclStream stream, std::function<void(std::vector<Bytes>& all)> take);
  TensorView sum(std::vector<Bytes>& all, DType dtype);

  const Enqueue enqueue_;
  const std::filesystem::path folder_;
  mutable std::mutex mutex_;
  CpuDevice device_{"fake"};
  ReferenceOps ops_{device_};
  std::vector<std::string> log_;
  std::map<std::string, NcclResult> refused_;
  std::vector<std::unique_ptr<ncclComm>> comms_;
  std::map<NcclWindow, TensorView> windows_;
  std::map<NcclId, std::atomic<NcclResult>> states_;  // of all communicators of an id in this process
  int ranks_that_join_ = 1 << 20;
  int version_ = 22809;
  std::atomic<bool> finalize_ends_ = true;
  std::atomic<bool> abort_ends_ = true;
};

}  // namespace maniple
