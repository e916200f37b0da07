#include <kernels/support/counted.hpp>
#include <launch/tools/analysis/summary_text.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace maniple {

using json = nlohmann::ordered_json;

namespace {

std::string line(std::string_view caption, const std::string& text) {
  return fmt::format("  {:<11} {}\n", caption, text);
}

std::string ranks_text(const std::vector<RecordedRank>& ranks) {
  std::set<int> nodes;
  int tensor = 0, pipeline = 0, data = 0;
  for (const RecordedRank& rank : ranks) {
    nodes.insert(rank.node);
    tensor = std::max(tensor, rank.tensor + 1);
    pipeline = std::max(pipeline, rank.pipeline + 1);
    data = std::max(data, rank.data + 1);
  }
  const std::string stages = pipeline > 1 ? fmt::format(", pp {}", pipeline) : "";
  return fmt::format("{} on {} (tp {}{}, dp {})", counted(ranks.size(), "rank"),
                     counted(nodes.size(), "node"), tensor, stages, data);
}

std::string head(const RecordedRun& run, const Summary& summary) {
  const Record& record = run.jobs.back().record;
  std::string text;
  const auto add = [&](std::string_view before, const std::string& part) {
    if (!part.empty()) text += fmt::format("{}{}", text.empty() ? "" : before, part);
  };
  add("", text_in(record, "command"));
  if (run.jobs.size() > 1) add(", ", counted(run.jobs.size(), "job"));
  if (!summary.ranks.empty()) add(", ", ranks_text(summary.ranks));
  add(", ", text_in(record, "dtype"));
  add(", repro ", text_in(record, "repro_level"));
  add("; maniple ", text_in(record, "version"));
  add(" git ", text_in(record, "git_commit"));
  text = fmt::format("{}: {}\n", run.name, text);
  if (const std::string model = text_in(record, "model_path"); !model.empty())
    text += line("model", fmt::format("{} ({})", model, text_in(record, "model_hash")));
  if (const std::string verdict = verdict_of(record); !verdict.empty()) text += line("verdict", verdict);
  return text;
}

std::string quantiles_text(const Quantiles& times) {
  return fmt::format("p50 {}  p90 {}  p99 {}  max {} ms", number_text(times.p50), number_text(times.p90),
                     number_text(times.p99), number_text(times.max));
}

std::string samples_text(const Summary& summary) {
  std::string text;
  for (const Metric& metric : summary.metrics)
    if (metric.values.size() > 1)
      text += fmt::format("  {:<24} {} {}  ({} repeats, median [95 % CI])\n", metric.name,
                          interval_text(median_interval(metric.values)), metric.unit, metric.values.size());
  return text;
}

std::string served_text(const Summary& summary) {
  std::string text;
  text += line("requests", fmt::format("{}, {} failed, {}; {} ({} cached), {}", summary.requests,
                                       summary.failed, counted(summary.preemptions, "preemption"),
                                       counted(summary.prompt_tokens, "prompt token"), summary.cached_tokens,
                                       counted(summary.output_tokens, "output token")));
  const auto value = [&](const char* metric) {
    const Metric* const found = summary.find(metric);
    return number_text(found ? found->median() : std::nan(""));
  };
  text += line("throughput",
               fmt::format("out {} tok/s, total {} tok/s, {} requests/s in {} s", value("out_tok_per_s"),
                           value("total_tok_per_s"), value("req_per_s"), number_text(summary.seconds)));
  text += line("step", fmt::format("{}  ({} steps)", quantiles_text(summary.step_ms), summary.steps));
  for (const auto& [name, times] : {std::pair("queue", summary.queue_ms),
                                    {"TTFT", summary.ttft_ms},
                                    {"TPOT", summary.tpot_ms},
                                    {"ITL", summary.itl_ms},
                                    {"end-to-end", summary.e2e_ms}})
    text += line(name, quantiles_text(times));
  if (!std::isnan(summary.empty_slots))
    text +=
        line("KV cache", fmt::format("{:.1f} % of the held slots had no token", 100 * summary.empty_slots));
  return text;
}

std::string spreads_text(const std::vector<RecordedRank>& ranks, const auto& measures, auto&& text_of_value) {
  std::string text;
  for (const RankMeasure& measure : measures) {
    const std::vector<double> values = values_of(ranks, measure.field);
    if (const double most = quantile(values, 1); most > 0)
      text += fmt::format("{}{} {} (max/mean {:.2f})", text.empty() ? "" : ", ", measure.name,
                          text_of_value(most), most / mean(values));
  }
  return text;
}

std::string energy_text(const Summary& summary) {
  const Energy& energy = summary.energy;
  if (energy.readable == 0) return "not readable on any node";
  if (energy.readable < energy.nodes)
    return fmt::format("readable on {} of {} nodes", energy.readable, energy.nodes);
  return fmt::format("{} J, {} J a token", number_text(energy.joules),
                     number_text(summary.joules_per_token()));
}

json in_json(const std::string& name, const Quantiles& times) {
  return {{"mean_" + name, times.mean},
          {"median_" + name, times.p50},
          {"p90_" + name, times.p90},
          {"p99_" + name, times.p99},
          {"max_" + name, times.max}};
}

// Each request has quantiles of its own gaps, so these keys are not vLLM's.
json gaps_json(const Quantiles& gaps) {
  return {{"mean_itl_ms", gaps.mean},
          {"median_of_p50_itl_ms", gaps.p50},
          {"median_of_p90_itl_ms", gaps.p90},
          {"median_of_p99_itl_ms", gaps.p99},
          {"max_itl_ms", gaps.max}};
}

json ranks_json(const std::vector<RecordedRank>& ranks) {
  json list = json::array();
  for (const RecordedRank& rank : ranks) {
    json& object = list.emplace_back(json{{"rank", rank.rank},
                                          {"host", rank.host},
                                          {"tensor", rank.tensor},
                                          {"pipeline", rank.pipeline},
                                          {"data", rank.data}});
    for (const RankMeasure& phase : rank_phases) object[phase.recorded_as] = rank.*phase.field;
    for (const RankMeasure& memory : rank_memory) object[memory.recorded_as] = rank.*memory.field;
  }
  return list;
}

json metrics_json(const std::vector<Metric>& metrics) {
  json object = json::object();
  for (const Metric& metric : metrics) {
    const Interval interval = median_interval(metric.values);
    object[metric.name] = {{"unit", metric.unit},
                           {"n", metric.values.size()},
                           {"median", interval.median},
                           {"low", interval.low},
                           {"high", interval.high}};
  }
  return object;
}

}  // namespace

std::string limits_text(const Interval& interval) {
  return fmt::format("[{}, {}]", number_text(interval.low), number_text(interval.high));
}

std::string interval_text(const Interval& interval) {
  return number_text(interval.median) + (std::isnan(interval.low) ? "" : ' ' + limits_text(interval));
}

std::string summary_text(const RecordedRun& run, const Summary& summary) {
  std::string text = head(run, summary);
  for (const RecordedJob& job : run.jobs) {
    if (const std::string ending = ending_text(job); !ending.empty()) text += "  " + ending + '\n';
    if (steps_end_early(job.record))
      text += fmt::format(
          "  {}: steps and heartbeats reach to {} s after it began to serve, when half of --record-limit was "
          "full\n",
          job.name, text_in(job.record, "steps_until_s"));
  }
  text += samples_text(summary);
  if (summary.steps > 0 || summary.requests > 0) text += served_text(summary);
  const auto seconds = [](double value) { return number_text(value) + " s"; };
  if (const std::string phases = spreads_text(summary.ranks, rank_phases, seconds); !phases.empty())
    text += line("phases", phases);
  if (const std::string memory = spreads_text(summary.ranks, rank_memory, bytes_text); !memory.empty())
    text += line("memory", memory);
  if (!summary.ranks.empty()) text += line("energy", energy_text(summary));
  return text;
}

std::string summary_json(const RecordedRun& run, const Summary& summary) {
  const auto rate = [&](double count) {
    return summary.seconds > 0 ? count / summary.seconds : std::nan("");
  };
  const uint64_t tokens = summary.prompt_tokens + summary.output_tokens;
  json object = {{"run", run.name}};
  for (const RecordedJob& job : run.jobs)
    object["jobs"].push_back({{"name", job.name},
                              {"complete", job.record.complete},
                              {"running", job.running},
                              {"rows_to_s", last_row_s(job.record)},
                              {"steps_to_s", quantile(column(job.record, "steps", "answered_s"), 1)}});
  for (const char* name :
       {"command", "version", "git_commit", "model_path", "model_hash", "input_hash", "dtype", "repro_level"})
    object[name] = text_in(run.jobs.back().record, name);
  object["verdict"] = verdict_of(run.jobs.back().record);
  object["elapsed_time"] = summary.seconds;
  object["num_requests"] = summary.requests;
  object["completed"] = summary.requests - summary.failed;
  object["failed"] = summary.failed;
  object["preemptions"] = summary.preemptions;
  object["total_input_tokens"] = summary.prompt_tokens;
  object["total_output_tokens"] = summary.output_tokens;
  object["total_num_tokens"] = tokens;
  object["requests_per_second"] = rate(static_cast<double>(summary.requests - summary.failed));
  object["tokens_per_second"] = rate(static_cast<double>(tokens));
  object["output_throughput"] = rate(static_cast<double>(summary.output_tokens));
  for (const auto& [name, times] : {std::pair("step_ms", summary.step_ms),
                                    {"queue_ms", summary.queue_ms},
                                    {"ttft_ms", summary.ttft_ms},
                                    {"tpot_ms", summary.tpot_ms},
                                    {"e2el_ms", summary.e2e_ms}})
    object.update(in_json(name, times));
  object.update(gaps_json(summary.itl_ms));
  object["empty_slots"] = summary.empty_slots;
  object["energy"] = {{"nodes", summary.energy.nodes},
                      {"readable", summary.energy.readable},
                      {"joules", summary.energy.nodes > 0 && summary.energy.readable == summary.energy.nodes
                                     ? summary.energy.joules
                                     : std::nan("")},
                      {"joules_per_token", summary.joules_per_token()}};
  object["metrics"] = metrics_json(summary.metrics);
  object["ranks"] = ranks_json(summary.ranks);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace maniple
