// NCCL for ranks that are threads: GPU memory is host memory, and the last rank to join a collective computes
// it, under one mutex. As with non-blocking communicators, calls return in_progress, comm_state() reports the
// outcome, and a group starts at its end. Stricter than NCCL: a call is in progress until its peers have
// joined; mismatched calls are an error where NCCL would hang; an abort is an error for the other ranks. Sums
// follow the tree, so the contract of Communicator holds to the bit.
#pragma once

#include <kernels/cpu/cpu_device.hpp>
#include <kernels/reference/reference_ops.hpp>
#include <parallel/nccl/nccl_api.hpp>

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

namespace maniple {

class FakeNccl : public NcclApi {
 public:
  static constexpr NcclResult invalid_usage{5}, remote_error{6};

  FakeNccl();
  ~FakeNccl() override;

  // --- what goes wrong ---
  void refuse(const std::string& call, NcclResult result);  // "init": every such call fails at once
  void break_in_background(NcclResult result);              // all existing communicators
  void let_join(int ranks);                                 // later ranks never arrive
  void let_finalize_end(bool ends);
  void let_abort_end(bool ends);  // as while captured graphs hold the communicator
  // "open", "draw", "init 1", "finalize 1", "destroy 1", "abort 1": rank in its group.
  std::vector<std::string> log() const;

  void open() override;
  std::optional<Gpu> gpu_of(Device& device) override;  // its description is the UUID
  int version() override { return 22809; }
  std::string describe(NcclResult result, NcclComm comm) override;
  NcclResult draw_id(NcclId& id) override;
  NcclResult comm_init(NcclComm& comm, int size, const NcclId& id, int rank) override;
  NcclResult comm_state(NcclComm comm, NcclResult& state) override;
  NcclResult comm_finalize(NcclComm comm) override;
  NcclResult comm_destroy(NcclComm comm) override;
  NcclResult comm_abort(NcclComm comm) override;
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

  enum class Kind { all_reduce, all_gather, reduce_scatter, reduce, broadcast, send, receive };
  struct Call {
    Kind kind;
    NcclComm comm;
    ConstTensorView in;
    TensorView out;
    int peer = 0;  // or root
  };
  struct Clique;

 private:
  NcclResult begin(const std::string& call, NcclComm comm);
  NcclResult submit(const Call& call);
  void post(const Call& call);
  void pass_on(Clique& clique, int from, int to);
  void compute(Clique& clique, const std::vector<Call>& calls);
  std::vector<std::byte> sum(const std::vector<Call>& calls);

  mutable std::mutex mutex_;
  CpuDevice device_{"fake"};
  ReferenceOps ops_{device_};
  std::vector<std::string> log_;
  std::map<std::string, NcclResult> refused_;
  std::map<NcclId, std::unique_ptr<Clique>> cliques_;
  int ids_drawn_ = 0;
  int ranks_that_join_ = 1 << 20;
  bool finalize_ends_ = true;
  std::atomic<bool> abort_ends_ = true;
};

}  // namespace maniple
