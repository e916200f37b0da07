#include <launch/record/thinning.hpp>

#include <utility>

namespace maniple {
namespace {

// Sums and counts of both; of what is a state, the later one's.
StepRow sum_of(const StepRow& first, const StepRow& second) {
  StepRow sum = second;
  sum.weight += first.weight;
  sum.planned_s = first.planned_s;
  sum.schedule_s += first.schedule_s;
  sum.transit_s += first.transit_s;
  sum.forward_s += first.forward_s;
  sum.sample_s += first.sample_s;
  sum.comm_s += first.comm_s;
  sum.sequences += first.sequences;
  sum.tokens += first.tokens;
  sum.prompt_tokens += first.prompt_tokens;
  sum.sampled += first.sampled;
  sum.context += first.context;
  sum.attended += first.attended;
  sum.plan_bytes += first.plan_bytes;
  sum.result_bytes += first.result_bytes;
  return sum;
}

}  // namespace

std::optional<StepRow> Thinning::merged(const StepRow& row) {
  const auto [there, fresh] = waiting_.try_emplace(row.replica, row);
  if (!fresh) there->second = sum_of(there->second, row);
  if (there->second.weight < weight_) return std::nullopt;
  const StepRow full = there->second;
  waiting_.erase(there);
  return full;
}

std::vector<StepRow> Thinning::rest() {
  std::vector<StepRow> rows;
  for (const auto& [replica, row] : std::exchange(waiting_, {})) rows.push_back(row);
  return rows;
}

}  // namespace maniple
