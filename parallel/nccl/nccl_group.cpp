#include <parallel/collectives.hpp>
#include <parallel/mailbox.hpp>
#include <parallel/nccl/nccl_group.hpp>

#include <exception>
#include <utility>

namespace maniple {

void NcclGroup::join(Transport& members, int most_blocks) {
  constexpr const char* name = "ncclCommInitRankConfig";
  NcclId id{};
  if (rank_ == 0) checked("ncclGetUniqueId", api_.draw_id(id));
  broadcast(members, id, 0);
  const auto begin = [&] {
    const std::lock_guard lock(mutex_);
    if (aborted_) refuse_after_abort(name);
    return checked(name, api_.comm_init(comm_, size_, id, rank_, most_blocks));
  };
  finish(name, begin(), Clock::now() + timeout_);
}

void NcclGroup::run(const char* name, const Call& call, Clock::time_point deadline) {
  finish(name, locked(name, call), deadline);
}

void NcclGroup::finish(const char* name, NcclResult result, Clock::time_point deadline) {
  Backoff backoff(Backoff::Spin::no);
  while (result == NcclResult::in_progress) {
    if (Clock::now() >= deadline) {
      abort();
      throw Error(ExitCode::fault,
                  fmt::format("rank {} of the NCCL group of {}: {} did not finish within {:.1f} s", rank_,
                              name_, name, std::chrono::duration<double>(timeout_).count()),
                  "a rank of the group is missing, or NCCL cannot reach it",
                  "NCCL_DEBUG=INFO shows what NCCL tried; `transport` host goes without it");
    }
    backoff.pause();
    result = locked(name, [this](NcclComm) { return state(); });
  }
}

NcclResult NcclGroup::locked(const char* name, const Call& call) {
  const std::lock_guard lock(mutex_);
  if (!comm_) refuse_after_abort(name);
  return checked(name, call(comm_));
}

void NcclGroup::refuse_after_abort(const char* name) const {
  fail(ExitCode::fault, "rank {} of the NCCL group of {}: {} after the communicator was aborted", rank_,
       name_, name);
}

NcclResult NcclGroup::state() {
  NcclResult state = NcclResult::success;
  const NcclResult asked = api_.comm_state(comm_, state);
  return failed(asked) ? asked : state;
}

NcclResult NcclGroup::checked(const char* name, NcclResult result) {
  if (!failed(result)) return result;
  const std::string what = failure(name, result);
  abort_comm();
  throw Error(ExitCode::fault, what, "the ranks of a group wait for each other",
              "NCCL_DEBUG=INFO shows what NCCL tried; `transport` host goes without it");
}

std::string NcclGroup::failure(const char* name, NcclResult result) {
  return fmt::format("rank {} of the NCCL group of {}: {} failed: {}", rank_, name_, name,
                     api_.describe(result, comm_));
}

std::optional<std::string> NcclGroup::fault() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !comm_) return std::nullopt;
  const NcclResult now = state();
  return failed(now) ? std::optional(failure("what runs in the background", now)) : std::nullopt;
}

bool NcclGroup::open() {
  const std::lock_guard lock(mutex_);
  return comm_ != nullptr;
}

void NcclGroup::abort() noexcept {
  const std::lock_guard lock(mutex_);
  abort_comm();
}

void NcclGroup::abort_comm() noexcept {
  aborted_ = true;
  if (comm_) abort_ = std::jthread([this, comm = std::exchange(comm_, nullptr)] { api_.comm_abort(comm); });
}

void NcclGroup::close() noexcept {
  if (std::uncaught_exceptions() > 0) return abort();
  if (!open()) return;
  try {
    run(
        "ncclCommFinalize", [this](NcclComm comm) { return api_.comm_finalize(comm); },
        Clock::now() + timeout_);
    locked("ncclCommDestroy", [this](NcclComm) { return api_.comm_destroy(std::exchange(comm_, nullptr)); });
  } catch (const Error&) {  // the communicator was aborted: nothing is left to close
  }
}

}  // namespace maniple
