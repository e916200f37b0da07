// What watches over a rank, from the meeting of the ranks to the end of the job.
#pragma once

#include <launch/output/rank_log.hpp>
#include <launch/process/stop_clock.hpp>
#include <launch/supervision/fault_reporter.hpp>
#include <launch/supervision/health_monitor.hpp>
#include <launch/supervision/node_peers.hpp>
#include <launch/supervision/start_deadline.hpp>

#include <optional>

namespace maniple {

struct Supervision {
  RankLog& log;
  FaultReporter& faults;
  std::optional<StartDeadline>& start;  // reset once the health monitor runs
  NodePeers& peers;
  const StopClock* clock = nullptr;  // rank 0, of a job that stops before its time is over
};

}  // namespace maniple
