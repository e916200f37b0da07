// A link between stages over NCCL: a communicator of two ranks and a stream for each direction, so that no receive stands in
// front of a send and both run beside the device's own work. Messages have no header: their sizes follow from the plan. Marks
// in the streams order them with the steps; the host waits for nothing.
#pragma once

#include <parallel/nccl/nccl_group.hpp>
#include <parallel/stage_link.hpp>

#include <array>
#include <memory>

namespace maniple {

class NcclLink final : public StageLink {
 public:
  static constexpr int most_blocks = 4;  // of NCCL's kernels: the others are for the step

  // in, out: groups of sender and receiver; null at an end. `api` and `device` must outlive the link.
  NcclLink(NcclApi& api, std::shared_ptr<NcclGroup> in, std::shared_ptr<NcclGroup> out, const StageRows& rows,
           Device& device);
  ~NcclLink() override;

  void send(const StageStep& step, ConstTensorView rows) override;
  TensorView take(const StageStep& step, int64_t rows) override;
  void release() override;
  double seconds() const override { return 0; }
  CollectiveCounts counts() const override { return counts_; }

 private:
  static constexpr size_t turns = 2;

  struct Direction {
    std::shared_ptr<NcclGroup> group;
    std::array<Tensor, turns> slots;  // [rows, width] each
    std::unique_ptr<NcclLane> lane;
    uint64_t used = 0;  // so far

    size_t turn() const { return used % turns; }
  };
  Direction direction(std::shared_ptr<NcclGroup> group, const StageRows& rows);

  NcclApi& api_;
  Device& device_;
  Direction in_, out_;
  CollectiveCounts counts_;
};

}  // namespace maniple
