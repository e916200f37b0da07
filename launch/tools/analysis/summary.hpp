// The numbers of a run. README.md says what each one means. NaN: not recorded.
#pragma once

#include <launch/record/recorded_run.hpp>
#include <launch/tools/analysis/recorded_ranks.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace maniple {

struct Quantiles {
  double mean, p50, p90, p99, max;
};
Quantiles quantiles_of(const std::vector<double>& values);

// A number that can be compared or required: one value for a run, or one for each repetition.
struct Metric {
  std::string name, unit;
  std::vector<double> values;
  double median() const;
};

struct Summary {
  uint64_t requests = 0, failed = 0, preemptions = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0, steps = 0;
  uint64_t sampled_tokens = 0;  // of the steps: as far as the heartbeats go
  double seconds = 0;           // of serving, of all jobs
  Quantiles step_ms, queue_ms, ttft_ms, tpot_ms, itl_ms, e2e_ms;
  double empty_slots;               // the share of held KV slots without a token
  std::vector<RecordedRank> ranks;  // of the last job
  Energy energy;                    // of all jobs; nodes of the job that could read the fewest
  std::vector<Metric> metrics;      // what a bench measured, then what follows from the rows

  const Metric* find(std::string_view metric) const;
  double joules_per_token() const;  // NaN unless every node could be read
};

Summary summarize(const RecordedRun& run);

// What each step added to the time of its replica, by row of /steps: from its plan, or from the answer before it if that came
// later, to its answer.
std::vector<double> step_seconds(const Record& record);
// Tokens of a KV block; NaN if the options do not say.
double block_size_of(const Record& record);

}  // namespace maniple
