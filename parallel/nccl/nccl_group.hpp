// The lifetime and the errors of one NCCL communicator, from its id to its end. It knows nothing of tensors.
#pragma once

#include <parallel/nccl/nccl_api.hpp>
#include <parallel/transport.hpp>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace maniple {

class NcclGroup {
 public:
  using Clock = std::chrono::steady_clock;

  // `name` is for messages: "world ranks 0, 2". timeout: of join() and close().
  NcclGroup(NcclApi& api, const Transport& members, std::string name, Clock::duration timeout)
      : api_(api), name_(std::move(name)), timeout_(timeout), rank_(members.rank()), size_(members.size()) {}
  ~NcclGroup() { close(); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // Once, collective over `members`, whose rank 0 draws an id and broadcasts it over them. Throws Error (fault) when NCCL fails, a rank
  // has not joined in time, or this group is aborted meanwhile. most_blocks: of NCCL's kernels on a GPU; 0: as many as it likes.
  void join(Transport& members, int most_blocks = 0);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Makes a call and waits until NCCL has accepted it. There is no deadline: the health thread notices a rank
  // that hangs. Throws Error (fault), naming rank, group and call, when the call fails, which also aborts the
  // communicator, and when the communicator was aborted before.
  using Call = std::function<NcclResult(NcclComm)>;
  void run(const char* name, const Call& call) { run(name, call, Clock::time_point::max()); }

  // --- from any thread ---
  // An error that happened in the background, if there is one. Never waits.
  std::optional<std::string> fault();
  // Aborts the communicator's work on this rank's device. Returns at once. NCCL waits until the captured
  // graphs that hold the communicator are gone: a thread does that, which the destructor joins.
  void abort() noexcept;

  // The regular end. Collective. Becomes abort() if the others do not join in time or an exception passes.
  void close() noexcept;

 private:
  void run(const char* name, const Call& call, Clock::time_point deadline);
  void finish(const char* name, NcclResult result, Clock::time_point deadline);
  NcclResult locked(const char* name, const Call& call);
  [[noreturn]] void refuse_after_abort(const char* name) const;
  NcclResult state();
  bool open();
  NcclResult checked(const char* name, NcclResult result);
  void abort_comm() noexcept;
  std::string failure(const char* name, NcclResult result);

  NcclApi& api_;
  const std::string name_;
  const Clock::duration timeout_;
  const int rank_;
  const int size_;
  // NCCL lets two threads use a communicator one after the other; each call under it is short.
  std::mutex mutex_;
  NcclComm comm_ = nullptr;  // null before join() and after the end
  bool aborted_ = false;
  std::jthread abort_;  // the last member: it uses the others
};

}  // namespace maniple
