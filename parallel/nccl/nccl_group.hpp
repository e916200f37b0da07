// The life of one NCCL communicator: from the id to the end, and whatever may go wrong between. It knows no
// tensors.
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

  // Collective over `members`: its rank 0 draws an id, which travels over `members` itself. `name` is for
  // messages: "world ranks 0, 2". Throws Error (fault) when NCCL fails, or some have not joined after
  // `patience`, which the end has too.
  NcclGroup(NcclApi& api, Transport& members, std::string name, Clock::duration patience);
  ~NcclGroup() { close(); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Makes a call and waits until NCCL has taken it over, for as long as that needs: who waits too long is
  // the health thread's matter. Throws Error (fault) naming rank, group and call when it failed, which
  // aborts the communicator, and when it was aborted before.
  using Call = std::function<NcclResult(NcclComm)>;
  void run(const char* name, const Call& call) { run(name, call, Clock::time_point::max()); }

  // --- from any thread ---
  // What went wrong in the background, if anything did. Never waits.
  std::optional<std::string> fault();
  // Ends what runs on the device and lets the others go without this rank. Returns at once: NCCL waits for
  // the captured graphs that hold the communicator to go, and does so in the background until this ends.
  void abort() noexcept;

  // The regular end, together with the others; abort() if they do not come, or while an exception passes.
  void close() noexcept;

 private:
  void run(const char* name, const Call& call, Clock::time_point deadline);
  void finish(const char* name, NcclResult result, Clock::time_point deadline);
  NcclResult locked(const char* name, const Call& call);
  NcclResult state();
  bool open();
  NcclResult checked(const char* name, NcclResult result);
  void abort_comm() noexcept;
  std::string failure(const char* name, NcclResult result);

  NcclApi& api_;
  const std::string name_;
  const Clock::duration patience_;
  const int rank_;
  const int size_;
  // NCCL lets two threads use a communicator one after the other; each call under it is short.
  std::mutex mutex_;
  NcclComm comm_ = nullptr;  // null when it has ended
  std::jthread abort_;       // last: it uses the others
};

}  // namespace maniple
