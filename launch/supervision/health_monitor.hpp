// A job never hangs silently. A thread on every rank sends heartbeats to rank 0 and receives rank 0's.
// A rank that is silent, makes no progress or dies ends the whole job, with one message that names it.
// So does a fault that only the world sees (of NCCL, while the rank waits for its GPU). The thread
// works while the rank's other threads hang. If the thread itself hangs, a watchdog ends the process.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/supervision/deadlines.hpp>
#include <launch/supervision/node_peers.hpp>
#include <launch/supervision/rank_vitals.hpp>
#include <launch/supervision/watchdog.hpp>
#include <parallel/world.hpp>
#include <runtime/control/rank_activity.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace maniple {

// A fault, as seen by the rank that noticed it first.
struct FaultReport {
  int rank = 0;         // the suspect
  Heartbeat last_seen;  // what it was doing
  Error error;          // about another rank: without its subject, "has not been heard of for 20 s"
  int noticed_by = 0;
  bool death = false;         // of a process
  bool from_outside = false;  // together with other ranks of its node: no request does that
  bool known_to_all = false;  // all ranks end together
};
// Reports the fault. Called once, from any thread; must not throw.
using OnFault = std::function<void(const FaultReport&)>;

class HealthMonitor {
 public:
  // Collective. Starts the thread; the references must outlive it. After a fault: on_fault, then world.abort.
  // vitals: on all ranks or none.
  HealthMonitor(World& world, NodePeers& peers, const Deadlines& deadlines, OnFault on_fault,
                VitalsObserver* vitals = nullptr);
  ~HealthMonitor();

  RankActivity& activity() { return peers_.activity(); }
  // Collective. Runs the job's work, and returns or throws what it does where all ranks know of its end: then the
  // monitors watch until rank 0 has closed its files. Any other exception ends the job. Before a failure is
  // reported, give_up gets its code.
  ExitCode supervise(
      const std::function<ExitCode()>& work, const std::function<void(ExitCode)>& give_up = [](ExitCode) {});

 private:
  // What rank 0 last heard of a rank.
  struct RankHealth {
    Heartbeat last;
    std::chrono::steady_clock::time_point heard;
    std::chrono::steady_clock::time_point progressed;
  };

  void run(const std::stop_token& stop);
  void send_heartbeats();
  void receive_heartbeats();
  void check_all();
  void check_progress();
  void check_disk();
  void check_coordinator();
  void restart_deadlines();
  void leave_together();
  void report_known_to_all(const Error& error, int rank);
  [[noreturn]] void report_and_end_job(const Error& error);
  [[noreturn]] void report_dead(int rank);
  [[noreturn]] void report_suspect(int rank, const std::string& what);
  bool node_is_gone(int rank) const;
  [[noreturn]] void end_job(const FaultReport& fault, std::optional<int> also_dead = {});

  World& world_;
  Deadlines deadlines_;
  OnFault on_fault_;
  NodePeers& peers_;
  VitalsObserver* vitals_;
  Channel channel_;
  std::vector<RankHealth> ranks_;  // rank 0: all; elsewhere only rank 0's
  uint32_t disk_ = 0;              // RankActivity's at disk_changed_
  std::chrono::steady_clock::time_point disk_changed_;
  uint64_t turns_ = 0;  // RankActivity's at turned_
  std::chrono::steady_clock::time_point turned_;
  std::chrono::steady_clock::time_point checked_;
  Watchdog watchdog_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
