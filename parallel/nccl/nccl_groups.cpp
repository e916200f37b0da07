#include <parallel/collectives.hpp>
#include <parallel/nccl/nccl_communicator.hpp>
#include <parallel/nccl/nccl_groups.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {

namespace {

// Long enough to load the library from a cold file system, short enough for a user who waits.
constexpr std::chrono::minutes timeout{2};

std::string version_text(int version) {
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

std::unique_ptr<Communicator> NcclGroups::make(Transport& members, std::span<const int> ranks,
                                               Device& device) {
  const std::optional<Gpu> gpu = api_->gpu_of(device);
  if (!gpu) return nullptr;
  if (const std::string reason = reason_against(members, ranks, gpu->uuid); !reason.empty()) {
    description_ = fmt::format("GPU tensors through the host ({})", reason);
    return nullptr;
  }
  description_ = version_text(api_->version());
  const auto group = std::make_shared<NcclGroup>(
      *api_, members, fmt::format("world ranks {}", fmt::join(ranks, ", ")), timeout);
  {
    const std::lock_guard lock(mutex_);
    groups_.push_back(group);
  }
  return std::make_unique<NcclCommunicator>(*api_, group, gpu->stream);
}

// Why the group cannot use NCCL; empty if it can.
std::string NcclGroups::reason_against(Transport& members, std::span<const int> ranks,
                                       const std::string& uuid) const {
  if (choice_ == GpuTransport::nccl) return {};
  if (choice_ == GpuTransport::host) return "as asked";
  const auto gpus = all_gather_bytes(members, uuid);
  for (auto gpu = gpus.begin(); gpu != gpus.end(); ++gpu)
    if (const auto same = std::find(gpu + 1, gpus.end(), *gpu); same != gpus.end())
      return fmt::format("ranks {} and {} share a GPU", ranks[gpu - gpus.begin()],
                         ranks[same - gpus.begin()]);
  return {};
}

void NcclGroups::abort() noexcept {
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<NcclGroup>& weak : groups_)
    if (const std::shared_ptr<NcclGroup> group = weak.lock()) group->abort();
}

std::optional<std::string> NcclGroups::fault() {
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<NcclGroup>& weak : groups_)
    if (const std::shared_ptr<NcclGroup> group = weak.lock())
      if (std::optional<std::string> fault = group->fault()) return fault;
  return std::nullopt;
}

}  // namespace maniple
