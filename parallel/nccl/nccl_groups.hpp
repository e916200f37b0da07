// Decides which groups of a world go over NCCL, makes those, and watches over them.
#pragma once

#include <parallel/communicator.hpp>
#include <parallel/nccl/nccl_group.hpp>
#include <parallel/world.hpp>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace maniple {

class NcclGroups {
 public:
  NcclGroups(std::shared_ptr<NcclApi> api, GpuTransport choice) : api_(std::move(api)), choice_(choice) {}

  // Before any group, so that a missing library is known while nobody waits for this rank.
  void open() {
    if (choice_ != GpuTransport::host) api_->open();
  }
  // Collective over `members`, the world ranks `ranks`. Null, on all members, where their tensors go another
  // way: they are not on GPUs, or not each on one of its own (NCCL refuses to share), or so it was asked.
  // This must outlive the group.
  std::unique_ptr<Communicator> make(Transport& members, std::span<const int> ranks, Device& device);

  // How the GPU tensors of the latest group travel, for the banner: "NCCL 2.28.9"; empty without any.
  const std::string& description() const { return description_; }
  // From any thread, without waiting: what is wrong in one of the groups.
  std::optional<std::string> fault();
  // Ends what they run on the device.
  void abort() noexcept;

 private:
  std::string reason_against(Transport& members, std::span<const int> ranks, const std::string& uuid) const;

  const std::shared_ptr<NcclApi> api_;
  const GpuTransport choice_;
  std::string description_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<NcclGroup>> groups_;
};

}  // namespace maniple
