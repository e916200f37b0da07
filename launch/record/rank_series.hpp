// What the ranks report with their heartbeats, as rows of the record. Every rank has one; rank 0's keeps the rows until
// the recorder takes them.
#pragma once

#include <launch/record/energy_counters.hpp>
#include <launch/record/schema.hpp>
#include <launch/supervision/rank_vitals.hpp>
#include <parallel/world.hpp>

#include <chrono>
#include <mutex>
#include <optional>
#include <vector>

namespace maniple {

class RankSeries : public VitalsObserver {
 public:
  // The first rank of each node reads the node's energy.
  explicit RankSeries(const RankLocation& location);

  RankVitals own(const RankActivity& activity) override;
  void heard(int rank, const RankVitals& vitals) override;

  // Keeps rows from now on, whose times count from `start`.
  void keep(std::chrono::steady_clock::time_point start);
  // The rows since the last call. From any thread.
  std::vector<RankSeriesRow> take();

 private:
  std::optional<EnergyCounters> energy_;
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> start_;
  std::vector<RankSeriesRow> rows_;
};

}  // namespace maniple
