#include <kernels/support/counted.hpp>
#include <launch/process/signals.hpp>
#include <launch/tools/analysis/summary_text.hpp>
#include <launch/tools/bench/figures.hpp>
#include <launch/tools/bench/serving.hpp>

#include <array>
#include <cmath>
#include <numeric>

namespace maniple {

using json = nlohmann::ordered_json;

namespace {

constexpr std::array times = {"ttft", "tpot", "itl", "e2e"};
constexpr double least_seconds = 10;  // of throughput, in all repeats that count

struct Served {
  std::vector<Round> repeats;  // that count, with what was measured
  RunSummary summary;
};

// Collective. Repeats of the first `sizes` requests of the workload, one size after the other.
std::optional<Served> serve(const ServingBench& bench, const std::vector<size_t>& sizes) {
  BenchJob& job = bench.job;
  if (job.world().rank() != 0) {
    bench.engine.run_worker();
    return std::nullopt;
  }
  std::vector<Round> planned;
  for (const size_t size : sizes)
    for (int turn = -job.options().warmup; turn < job.options().repeats; ++turn)
      planned.push_back({.requests = size, .counts = turn >= 0});
  Rounds rounds(bench.workload, std::move(planned), bench.record);
  const auto start = std::chrono::steady_clock::now();
  const auto on_progress = [&](const Progress& progress) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    job.progress(progress, {rounds.all(), rounds.done(), 0, 0}, seconds.count());
  };
  Served served;
  served.summary = bench.engine.run(rounds, rounds, on_progress, InterruptScope::flag(), &rounds);
  if (served.summary.interrupted) return std::nullopt;
  std::ranges::copy_if(rounds.rounds(), std::back_inserter(served.repeats), &Round::counts);
  return served;
}

std::string caption(const ServingBench& bench, const std::string& requests) {
  const BenchOptions& options = bench.job.options();
  return fmt::format("# {} {}: {} ({}); tp {}, dp {}, {}; {}, median [95 % CI]\n", name_of(options.bench),
                     options.engine.model.string(), requests, bench.workload.name, bench.plan.grid.tensor,
                     bench.plan.grid.data, name_of(bench.plan.dtype),
                     counted(static_cast<uint64_t>(options.repeats), "repeat"));
}

std::string cell(const Figure& figure) {
  const Interval interval = figure.interval();
  return fmt::format(" {:>10}  {:17}", number_text(interval.median), limits_text(interval));
}

// A line of a table, without blanks at its end.
void print_row(BenchJob& job, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  job.print(line + '\n');
}

BenchResult start_result(const ServingBench& bench, Served& served) {
  BenchResult result;
  result.numbers = {{"model", bench.job.options().engine.model.string()}, {"workload", bench.workload.name}};
  result.run = std::move(served.summary);
  return result;
}

json fom_of(const Figure& figure) {
  return {{"metric", figure.metric.name}, {"value", figure.interval().median}, {"unit", figure.metric.unit}};
}

void add_medians(json& numbers, const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) numbers[figure.key] = figure.interval().median;
}

// Outputs of one token have no TPOT.
bool is_known(const Figure& figure) { return !std::isnan(figure.interval().median); }

void add_samples(BenchResult& result, const std::vector<Figure>& figures) {
  for (const Figure& figure : figures)
    if (is_known(figure)) result.samples.push_back(figure.metric);
}

}  // namespace

std::optional<BenchResult> bench_throughput(const ServingBench& bench) {
  const size_t requests = bench.workload.requests.size();
  std::optional<Served> served = serve(bench, {requests});
  if (!served) return std::nullopt;
  const std::vector<Figure> figures = figures_of(served->repeats);
  const Tokens tokens = tokens_of(served->repeats.front());
  bench.job.print(caption(bench, fmt::format("{} at once, {} tokens in, {} out", counted(requests, "request"),
                                             tokens.prompt, tokens.output)));
  print_row(bench.job, fmt::format("#    {:>11}  {:17} {:>10}  {}", "p50(ms)", "[CI]", "p99(ms)", "[CI]"));
  for (const char* time : times)
    print_row(bench.job, fmt::format("{:5}{}{}", time, cell(find(figures, fmt::format("{}_p50_ms", time))),
                                     cell(find(figures, fmt::format("{}_p99_ms", time)))));
  const Figure& out = find(figures, "out_tok_per_s");
  const Interval per_second = out.interval();
  BenchResult result = start_result(bench, *served);
  result.last_line =
      fmt::format("throughput  out {} tok/s {}  total {} tok/s  {}\n", number_text(per_second.median),
                  limits_text(per_second), number_text(find(figures, "total_tok_per_s").interval().median),
                  counted(served->repeats.size(), "repeat"));
  add_medians(result.numbers, figures);
  result.numbers["num_requests"] = requests;
  result.numbers["total_num_tokens"] = tokens.prompt + tokens.output;
  result.numbers["fom"] = fom_of(out);
  add_samples(result, figures);
  result.evidence.results = {{out.metric.name, per_second}};
  for (const Round& round : served->repeats) {
    result.work.push_back({round.steps, round.seconds});
    result.evidence.seconds += round.seconds;
  }
  result.evidence.least_seconds = least_seconds;
  return result;
}

std::optional<BenchResult> bench_latency(const ServingBench& bench) {
  const std::vector<uint32_t>& sizes = bench.job.options().batch_sizes;
  std::optional<Served> served = serve(bench, {sizes.begin(), sizes.end()});
  if (!served) return std::nullopt;
  bench.job.print(caption(bench, "batches of requests at once; medians of the requests"));
  std::string heads = "#  batch";
  for (const char* time : times) heads += fmt::format(" {:>10}  {:17}", fmt::format("{}(ms)", time), "[CI]");
  print_row(bench.job, heads);
  const auto repeats = static_cast<size_t>(bench.job.options().repeats);
  BenchResult result = start_result(bench, *served);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string suffix = fmt::format("_batch_{}", sizes[i]);
    const std::vector<Figure> figures =
        figures_of(std::span(served->repeats).subspan(i * repeats, repeats), suffix);
    std::string line = fmt::format("{:8}", sizes[i]);
    for (const char* time : times) {
      const Figure& figure = find(figures, fmt::format("{}_p50_ms{}", time, suffix));
      line += cell(figure);
      if (is_known(figure)) result.evidence.results.push_back({figure.metric.name, figure.interval()});
    }
    print_row(bench.job, line);
    const std::vector<double>& seconds = find(figures, "elapsed_s" + suffix).metric.values;
    json row = {
        {"batch_size", sizes[i]},
        {"avg_latency", std::reduce(seconds.begin(), seconds.end()) / static_cast<double>(seconds.size())},
        {"latencies", seconds}};
    add_medians(row, figures);
    result.numbers["rows"].push_back(row);
    add_samples(result, figures);
    const Figure& end_to_end = find(figures, "e2e_p50_ms" + suffix);
    result.numbers["fom"] = fom_of(end_to_end);
    result.last_line =
        fmt::format("# fom: {} = {} ms\n", end_to_end.metric.name, number_text(end_to_end.interval().median));
  }
  return result;
}

}  // namespace maniple
