// Collective operations of NCCL, on the device's own stream.
#pragma once

#include <parallel/communicator.hpp>
#include <parallel/nccl/nccl_group.hpp>

#include <functional>
#include <memory>
#include <utility>

namespace maniple {

class NcclCommunicator final : public Communicator {
 public:
  // Other owners of the group may poll or abort it; the destructor closes it.
  // windows: sums are in one (sum_memory).
  NcclCommunicator(NcclApi& api, std::shared_ptr<NcclGroup> group, NcclStream stream, bool windows = false)
      : api_(api), group_(std::move(group)), stream_(stream), windows_(windows) {}
  ~NcclCommunicator() override;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  bool captures() const override { return true; }
  TensorView sum_memory(size_t bytes) override;
  void all_reduce(TensorView x) override;
  void all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override;
  void reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override;
  void all_to_all(ConstTensorView in, TensorView out) override;
  void broadcast(TensorView x, int root) override;
  void send(ConstTensorView x, int to) override;
  void receive(TensorView x, int from) override;

 private:
  // One call for each peer, started together.
  void for_each_peer(const char* name, const std::function<NcclResult(int peer, NcclComm comm)>& call);

  NcclApi& api_;
  std::shared_ptr<NcclGroup> group_;
  NcclStream stream_;
  const bool windows_;
  NcclWindow window_ = nullptr;
  TensorView sum_memory_;
};

}  // namespace maniple
