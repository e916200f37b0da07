#include <launch/tools/analysis/statistics.hpp>
#include <launch/tools/analysis/summary.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace maniple {
namespace {

// The rows of all jobs.
double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [](double sum, double value) { return sum + (std::isnan(value) ? 0 : value); });
}

uint64_t count_in(const RecordedRun& run, std::string_view table, std::string_view field) {
  return static_cast<uint64_t>(std::clamp(sum_of(column(run, table, field)), 0.0, 1e18));
}

Quantiles in_ms(std::vector<double> seconds) {
  for (double& value : seconds) value *= 1e3;
  return quantiles_of(seconds);
}

std::vector<double> differences(std::vector<double> later, const std::vector<double>& earlier) {
  for (size_t i = 0; i < later.size(); ++i) later[i] -= earlier[i];
  return later;
}

Quantiles step_times(const RecordedRun& run) {
  std::vector<double> seconds, weights;
  for (const RecordedJob& job : run.jobs) {
    std::ranges::copy(step_seconds(job.record), std::back_inserter(seconds));
    std::ranges::copy(column(job.record, "steps", "weight"), std::back_inserter(weights));
  }
  for (double& value : seconds) value *= 1e3;
  double sum = 0, count = 0;
  for (size_t row = 0; row < seconds.size(); ++row)
    if (!std::isnan(seconds[row])) sum += seconds[row] * weights[row], count += weights[row];
  const auto at = [&](double p) { return quantile(seconds, weights, p); };
  return {count > 0 ? sum / count : not_measured, at(0.5), at(0.9), at(0.99), at(1)};
}

// From the first plan to the last answer, of each job.
double serving_seconds(const RecordedRun& run) {
  double seconds = 0;
  for (const RecordedJob& job : run.jobs) {
    const double first = quantile(column(job.record, "steps", "planned_s"), 0);
    double last = quantile(column(job.record, "steps", "answered_s"), 1);
    if (steps_end_early(job.record))
      last = std::max(last, quantile(column(job.record, "requests", "done_s"), 1));
    if (!std::isnan(first)) seconds += last - first;
  }
  return seconds;
}

// Gaps between tokens. Each request has the quantiles of its own: p50, p90 and p99 are the medians of these. The mean is
// that of all gaps.
Quantiles token_gaps(const RecordedRun& run) {
  const auto median_ms = [&](const char* field) {
    return quantile(column(run, "requests", field), 0.5) * 1e3;
  };
  const std::vector<double> output = column(run, "requests", "output");
  const std::vector<double> tpot = column(run, "requests", "tpot_s");
  double seconds = 0, gaps = 0;
  for (size_t row = 0; row < output.size(); ++row)
    if (output[row] > 1 && !std::isnan(tpot[row])) {
      seconds += tpot[row] * (output[row] - 1);
      gaps += output[row] - 1;
    }
  return {gaps > 0 ? seconds / gaps * 1e3 : not_measured, median_ms("itl_p50_s"), median_ms("itl_p90_s"),
          median_ms("itl_p99_s"), quantile(column(run, "requests", "itl_max_s"), 1) * 1e3};
}

// A row of several steps has the blocks of the last one.
double empty_slots_of(const RecordedRun& run) {
  double slots = 0, tokens = 0;
  for (const RecordedJob& job : run.jobs) {
    const std::vector<double> weight = column(job.record, "steps", "weight"),
                              held = column(job.record, "steps", "held_blocks"),
                              held_tokens = column(job.record, "steps", "kv_tokens");
    const double block_size = block_size_of(job.record);
    for (size_t row = 0; row < weight.size(); ++row) {
      slots += weight[row] * held[row] * block_size;
      tokens += weight[row] * held_tokens[row];
    }
  }
  return slots > 0 ? 1 - tokens / slots : not_measured;
}

Energy energy_of_jobs(const RecordedRun& run) {
  Energy sum;
  for (const RecordedJob& job : run.jobs) {
    const Energy of_job = energy_of(recorded_ranks(job.record));
    const int missing = sum.nodes - sum.readable;
    if (&job == run.jobs.data() || of_job.nodes - of_job.readable > missing)
      sum.nodes = of_job.nodes, sum.readable = of_job.readable;
    sum.joules += of_job.joules;
  }
  return sum;
}

// What a bench measured, a value for each repetition.
std::vector<Metric> sampled_metrics(const RecordedRun& run) {
  std::vector<Metric> metrics;
  for (const RecordedJob& job : run.jobs) {
    const StoredTable* const samples = job.record.find("samples");
    const std::vector<double> values = column(job.record, "samples", "value");
    for (size_t row = 0; row < values.size(); ++row) {
      const std::string name = samples->text_at("metric", row);
      auto metric = std::ranges::find(metrics, name, &Metric::name);
      if (metric == metrics.end()) metric = metrics.insert(metric, {name, samples->text_at("unit", row), {}});
      metric->values.push_back(values[row]);
    }
  }
  return metrics;
}

void add_metrics(Summary& summary) {
  const auto add = [&](const std::string& name, const char* unit, double value) {
    if (!std::isnan(value) && !summary.find(name)) summary.metrics.push_back({name, unit, {value}});
  };
  const double seconds = summary.seconds > 0 ? summary.seconds : not_measured;
  const auto tokens = static_cast<double>(summary.output_tokens);
  add("out_tok_per_s", "tok/s", tokens / seconds);
  add("total_tok_per_s", "tok/s", (tokens + static_cast<double>(summary.prompt_tokens)) / seconds);
  add("req_per_s", "req/s", static_cast<double>(summary.requests - summary.failed) / seconds);
  add("elapsed_s", "s", seconds);
  for (const auto& [name, times] : {std::pair("step", summary.step_ms),
                                    {"ttft", summary.ttft_ms},
                                    {"tpot", summary.tpot_ms},
                                    {"itl", summary.itl_ms},
                                    {"e2e", summary.e2e_ms}}) {
    add(std::string(name) + "_p50_ms", "ms", times.p50);
    add(std::string(name) + "_p99_ms", "ms", times.p99);
  }
  add("empty_slots", "", summary.empty_slots);
  add("joules_per_token", "J/token", summary.joules_per_token());
}

}  // namespace

// With two steps in flight their own times overlap. A row of several steps stands for that many equal ones.
std::vector<double> step_seconds(const Record& record) {
  const std::vector<double> replica = column(record, "steps", "replica"),
                            weight = column(record, "steps", "weight"),
                            planned = column(record, "steps", "planned_s"),
                            answered = column(record, "steps", "answered_s");
  std::vector<double> seconds;
  std::map<double, double> last_answer;
  for (size_t row = 0; row < replica.size(); ++row) {
    const auto [last, first] = last_answer.try_emplace(replica[row], planned[row]);
    seconds.push_back((answered[row] - std::max(planned[row], last->second)) / weight[row]);
    last->second = answered[row];
  }
  return seconds;
}

double block_size_of(const Record& record) {
  const auto options = nlohmann::json::parse(text_in(record, "options"), nullptr, /*allow_exceptions=*/false);
  const nlohmann::json::json_pointer place("/in_force/block_size");
  return options.contains(place) && options[place].is_number() ? options[place].get<double>() : not_measured;
}

Quantiles quantiles_of(const std::vector<double>& values) {
  return {mean(values), quantile(values, 0.5), quantile(values, 0.9), quantile(values, 0.99),
          quantile(values, 1)};
}

double Metric::median() const { return quantile(values, 0.5); }

const Metric* Summary::find(std::string_view metric) const {
  const auto found = std::ranges::find(metrics, metric, &Metric::name);
  return found == metrics.end() ? nullptr : &*found;
}

double Summary::joules_per_token() const {
  const bool known = energy.nodes > 0 && energy.readable == energy.nodes && sampled_tokens > 0;
  return known ? energy.joules / static_cast<double>(sampled_tokens) : not_measured;
}

Summary summarize(const RecordedRun& run) {
  Summary summary;
  const std::vector<double> outputs = column(run, "requests", "output");
  summary.requests = outputs.size();
  summary.failed = static_cast<uint64_t>(std::ranges::count(outputs, 0));
  summary.preemptions = count_in(run, "requests", "preemptions");
  summary.prompt_tokens = count_in(run, "requests", "prompt");
  summary.cached_tokens = count_in(run, "requests", "cached");
  // Steps have those of unfinished requests too; those of a long job may end early.
  summary.sampled_tokens = count_in(run, "steps", "sampled");
  summary.output_tokens = std::max(summary.sampled_tokens, count_in(run, "requests", "output"));
  summary.steps = count_in(run, "steps", "weight");
  summary.seconds = serving_seconds(run);
  summary.step_ms = step_times(run);
  summary.queue_ms =
      in_ms(differences(column(run, "requests", "admitted_s"), column(run, "requests", "arrival_s")));
  summary.ttft_ms = in_ms(column(run, "requests", "ttft_s"));
  summary.tpot_ms = in_ms(column(run, "requests", "tpot_s"));
  summary.itl_ms = token_gaps(run);
  summary.e2e_ms = in_ms(column(run, "requests", "e2e_s"));
  summary.empty_slots = empty_slots_of(run);
  summary.ranks = recorded_ranks(run.jobs.back().record);
  summary.energy = energy_of_jobs(run);
  summary.metrics = sampled_metrics(run);
  add_metrics(summary);
  return summary;
}

}  // namespace maniple
