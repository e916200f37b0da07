// What ranks report of themselves with their heartbeats, beside what supervision needs.
#pragma once

#include <runtime/control/rank_activity.hpp>

#include <limits>
#include <type_traits>

namespace maniple {

struct RankVitals {
  RankTotals totals;
  uint64_t resident_bytes = 0;  // host memory of the process
  double node_joules = std::numeric_limits<
      double>::quiet_NaN();  // of the node so far: from one of its ranks, if it can be read
};
static_assert(std::is_trivially_copyable_v<RankVitals>);

// Called on the thread of the health monitor; must not wait.
class VitalsObserver {
 public:
  virtual ~VitalsObserver() = default;
  virtual RankVitals own(const RankActivity& activity) = 0;
  virtual void heard(int rank, const RankVitals& vitals) = 0;  // on rank 0, of all ranks
};

}  // namespace maniple
