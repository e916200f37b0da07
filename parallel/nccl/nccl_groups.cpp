#include <parallel/collectives.hpp>
#include <parallel/nccl/nccl_communicator.hpp>
#include <parallel/nccl/nccl_groups.hpp>
#include <parallel/nccl/nccl_link.hpp>
#include <parallel/subset_transport.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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
  if (!gpu || !carries(members, ranks, *gpu)) return nullptr;
  return std::make_unique<NcclCommunicator>(*api_, make_group(members, ranks, 0), gpu->stream,
                                            opens_windows());
}

// The first stages form their groups first: no rank waits for one that waits for it.
std::unique_ptr<StageLink> NcclGroups::make_link(Transport& all, std::optional<int> previous,
                                                 std::optional<int> next, const StageRows& rows,
                                                 Device& device) {
  const std::optional<Gpu> gpu = api_->gpu_of(device);
  std::vector<int> everyone(static_cast<size_t>(all.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  if (!gpu || !carries(all, everyone, *gpu) || !orders_launches(all)) return nullptr;
  const auto pair = [&](int sender, int receiver) {
    const std::vector<int> ranks{sender, receiver};
    SubsetTransport members(all, ranks);
    return make_group(members, ranks, NcclLink::most_blocks);
  };
  std::shared_ptr<NcclGroup> in, out;
  if (previous) in = pair(*previous, all.rank());
  if (next) out = pair(all.rank(), *next);
  return std::make_unique<NcclLink>(*api_, std::move(in), std::move(out), rows, device);
}

bool NcclGroups::carries(Transport& members, std::span<const int> ranks, const Gpu& gpu) {
  const std::string reason = reason_against(members, ranks, gpu);
  description_ = reason.empty() ? version_text(api_->version())
                                : fmt::format("GPU tensors through the host ({})", reason);
  return reason.empty();
}

bool NcclGroups::opens_windows() {
  if (!switches_.windows) return false;
  const bool can = api_->version() >= first_windows;
  description_ += can ? ", sums in windows" : ", no windows (before 2.29.7)";
  return can;
}

// Kernels of two communicators on one GPU may wait for each other for ever unless all ranks start them in one order. The program
// does, and NCCL keeps it where NCCL_LAUNCH_ORDER_IMPLICIT is 1 (launch/start sets it). Source: NCCL user guide, "Using multiple NCCL communicators
// concurrently".
bool NcclGroups::orders_launches(Transport& all) {
  if (groups_.empty()) return true;
  const bool can = api_->version() >= 22600;
  const auto switched = all_gather_bytes(all, switches_.orders_launches ? "1" : "0");
  const bool does = can && std::ranges::count(switched, "1") == all.size();
  description_ += does  ? ", launches in order (NCCL_LAUNCH_ORDER_IMPLICIT)"
                  : can ? ", stages through the host (NCCL_LAUNCH_ORDER_IMPLICIT is not 1)"
                        : ", stages through the host (before 2.26)";
  return does;
}

std::shared_ptr<NcclGroup> NcclGroups::make_group(Transport& members, std::span<const int> ranks,
                                                  int most_blocks) {
  auto group = std::make_shared<NcclGroup>(*api_, members,
                                           fmt::format("world ranks {}", fmt::join(ranks, ", ")), timeout);
  {
    const std::lock_guard lock(mutex_);
    groups_.push_back(group);
  }
  group->join(members, most_blocks);
  return group;
}

// Why the group cannot use NCCL; empty if it can.
std::string NcclGroups::reason_against(Transport& members, std::span<const int> ranks, const Gpu& gpu) const {
  if (choice_ == GpuTransport::nccl) return {};
  if (choice_ == GpuTransport::host) return "as asked";
  const auto two_ranks_with = [&](const std::string& mine, const char* what) -> std::string {
    const auto all = all_gather_bytes(members, mine);
    for (auto one = all.begin(); one != all.end(); ++one)
      if (const auto same = std::find(one + 1, all.end(), *one); same != all.end())
        return fmt::format("ranks {} and {} {}", ranks[one - all.begin()], ranks[same - all.begin()], what);
    return {};
  };
  std::string reason = two_ranks_with(gpu.uuid, "share a GPU");
  if (reason.empty() && api_->version() < 23000)
    reason = two_ranks_with(gpu.card, "have parts of one GPU, which NCCL before 2.30 refuses");
  return reason;
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
