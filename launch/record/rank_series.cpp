#include <launch/record/rank_series.hpp>

#include <unistd.h>

#include <fstream>
#include <utility>

namespace maniple {
namespace {

uint64_t resident_bytes() {
  uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

double seconds(uint64_t microseconds) { return static_cast<double>(microseconds) * 1e-6; }

}  // namespace

RankSeries::RankSeries(const RankLocation& location) {
  if (location.local_rank == 0) energy_.emplace();
}

RankVitals RankSeries::own(const RankActivity& activity) {
  RankVitals vitals{.totals = activity.totals(), .resident_bytes = resident_bytes()};
  if (energy_) vitals.node_joules = energy_->joules();
  return vitals;
}

void RankSeries::heard(int rank, const RankVitals& vitals) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (!start_) return;
  rows_.push_back({.t_s = std::chrono::duration<double>(now - *start_).count(),
                   .rank = rank,
                   .steps = vitals.totals.steps,
                   .prefill_s = seconds(vitals.totals.prefill),
                   .decode_s = seconds(vitals.totals.decode),
                   .comm_s = seconds(vitals.totals.communication),
                   .idle_s = seconds(vitals.totals.idle),
                   .rss_bytes = vitals.resident_bytes,
                   .node_j = vitals.node_joules});
}

void RankSeries::keep(std::chrono::steady_clock::time_point start) {
  const std::lock_guard lock(mutex_);
  start_ = start;
}

std::vector<RankSeriesRow> RankSeries::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rows_, {});
}

}  // namespace maniple
