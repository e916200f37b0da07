// Makes the tables that grow with time smaller, without a change of their sums.
#pragma once

#include <launch/record/schema.hpp>
#include <runtime/control/observer.hpp>

#include <map>
#include <optional>
#include <vector>

namespace maniple {

class Thinning {
 public:
  explicit Thinning(uint32_t weight = 1) : weight_(weight) {}

  uint32_t weight() const { return weight_; }  // steps in a row
  void double_weight() { weight_ *= 2; }

  // A row of at least weight() steps of one replica, if this one completes it.
  std::optional<StepRow> merged(const StepRow& row);
  // Rows that still wait for more steps.
  std::vector<StepRow> rest();
  // True for one of weight() rows of a rank: they hold sums, so a row less loses resolution only.
  bool keeps(const RankSeriesRow& row) { return heard_[row.rank]++ % weight_ == 0; }

 private:
  uint32_t weight_;
  std::map<uint32_t, StepRow> waiting_;  // by replica
  std::map<int32_t, uint32_t> heard_;    // rows so far, by rank
};

}  // namespace maniple
