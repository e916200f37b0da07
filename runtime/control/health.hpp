// A job never hangs silently: a thread on every rank tells rank 0 what the rank is doing; silence or lack of
// progress ends the whole job with one message that names the rank, and so does the death of a rank of the
// same node, or a fault of a group that only its world sees (NCCL's, while the rank waits for its GPU). It
// works while the rank's other threads are stuck; a watchdog ends the process when it is stuck itself.
#pragma once

#include <kernels/support/check.hpp>
#include <parallel/world.hpp>
#include <runtime/control/neighbours.hpp>
#include <runtime/control/pulse.hpp>
#include <runtime/control/watchdog.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace maniple {

struct Deadlines {
  std::chrono::milliseconds beat{2000};
  std::chrono::milliseconds silence{20'000};      // nothing heard from a rank
  std::chrono::milliseconds progress{45'000};     // a step without a new layer, a disk that takes nothing
  std::chrono::milliseconds start_up{1'800'000};  // start and load; the end, with the final files
  std::chrono::milliseconds last_words{5'000};    // from noticing a fault to the end of this process

  // So that all ranks are gone so long after a fault.
  static Deadlines within(std::chrono::milliseconds all_gone);
};

// The first thing that went wrong, as the rank saw it that noticed it first.
struct FaultReport {
  int rank = 0;  // the failing one
  Whereabouts where;
  Error error;  // of another rank: without its subject, "has not been heard of for 20 s"
  int noticed_by = 0;
  bool death = false;         // of a process
  bool from_outside = false;  // with other ranks of its node: no request does that
  bool agreed = false;        // all ranks know, and end together
};
// Makes it known; called once, from any thread, and must not throw.
using TellFault = std::function<void(const FaultReport&)>;

class Health {
 public:
  // Collective. Starts the thread; the references must outlive it. On a fault it tells and calls world.abort.
  Health(World& world, Neighbours& neighbours, const Deadlines& deadlines, TellFault tell);
  ~Health();

  Pulse& pulse() { return neighbours_.pulse(); }
  // What a rank threw. If all know of it this returns, for them to end together; else it ends the job.
  void tell_agreed(const Error& error, int rank);
  [[noreturn]] void tell_alone(const Error& error);

 private:
  // What rank 0 last heard of a rank.
  struct RankHealth {
    Whereabouts last;
    std::chrono::steady_clock::time_point heard;
    std::chrono::steady_clock::time_point progressed;
  };

  void watch(const std::stop_token& stop);
  void beat();
  void listen();
  void judge();
  void judge_progress();
  void judge_disk();
  void judge_coordinator();
  void start_deadlines_again();
  [[noreturn]] void accuse_dead(int rank);
  [[noreturn]] void accuse(int rank, const std::string& what);
  bool node_is_gone(int rank) const;
  [[noreturn]] void give_up(const FaultReport& fault, std::optional<int> also_dead = {});

  World& world_;
  Deadlines deadlines_;
  TellFault tell_;
  Neighbours& neighbours_;
  Channel channel_;
  std::vector<RankHealth> ranks_;  // rank 0: all; elsewhere only rank 0's
  uint32_t disk_ = 0;              // of the pulse, since
  std::chrono::steady_clock::time_point disk_changed_;
  uint64_t turns_ = 0;  // of the pulse, since
  std::chrono::steady_clock::time_point turned_;
  std::chrono::steady_clock::time_point judged_;
  Watchdog watchdog_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
