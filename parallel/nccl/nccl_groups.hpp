// Decides which groups of a world use NCCL, makes them and polls them for errors.
#pragma once

#include <parallel/communicator.hpp>
#include <parallel/nccl/nccl_group.hpp>
#include <parallel/stage_link.hpp>
#include <parallel/world.hpp>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace maniple {

class NcclGroups {
 public:
  // windows: groups keep their sums in one, where NCCL has what that needs.
  NcclGroups(std::shared_ptr<NcclApi> api, GpuTransport choice, NcclSwitches switches = {})
      : api_(std::move(api)), choice_(choice), switches_(switches) {}

  // Call it before the first group is made: a missing library is then known while no rank waits for this one.
  void open() {
    if (choice_ != GpuTransport::host) api_->open();
  }
  // Collective over `members`, the world ranks `ranks`. Null on all members where NCCL does not carry their
  // tensors: they are not on GPUs, two members share a GPU or, before NCCL 2.30, have parts of one (NCCL refuses that), or the choice
  // is GpuTransport::host. This object must outlive the group.
  std::unique_ptr<Communicator> make(Transport& members, std::span<const int> ranks, Device& device);

  // Collective over `all`, the world. The link of a rank to the stages before and after it (world ranks; absent at the ends).
  // Null on all ranks where NCCL does not carry their tensors, as for make(), and beside groups where it does not order launches.
  std::unique_ptr<StageLink> make_link(Transport& all, std::optional<int> previous, std::optional<int> next,
                                       const StageRows& rows, Device& device);

  // How the GPU tensors of the latest group travel, for the banner: "NCCL 2.28.9"; empty without any.
  const std::string& description() const { return description_; }
  // An error in one of the groups, if there is one. From any thread; never waits.
  std::optional<std::string> fault();
  // Aborts all groups.
  void abort() noexcept;

 private:
  // Whether NCCL carries the members' tensors; sets the description.
  bool carries(Transport& members, std::span<const int> ranks, const Gpu& gpu);
  // Whether windows were asked for and can be had; adds to the description.
  bool opens_windows();
  // Whether NCCL keeps the order of launches on a device with several communicators; adds to the description.
  bool orders_launches(Transport& all);
  std::shared_ptr<NcclGroup> make_group(Transport& members, std::span<const int> ranks, int most_blocks);
  std::string reason_against(Transport& members, std::span<const int> ranks, const Gpu& gpu) const;

  const std::shared_ptr<NcclApi> api_;
  const GpuTransport choice_;
  const NcclSwitches switches_;
  std::string description_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<NcclGroup>> groups_;
};

}  // namespace maniple
