#include <launch/tools/bench/figures.hpp>

#include <algorithm>

namespace maniple {
namespace {

std::vector<double> column_of(const Round& round, double RequestRow::*field) {
  std::vector<double> values;
  for (const RequestRow& row : round.rows) values.push_back(row.*field);
  return values;
}

// Of all gaps between tokens.
double mean_gap(const Round& round) {
  double seconds = 0, gaps = 0;
  for (const RequestRow& row : round.rows)
    if (row.output > 1) {
      seconds += row.done_s - row.first_s;
      gaps += static_cast<double>(row.output - 1);
    }
  return seconds / gaps;
}

}  // namespace

Tokens tokens_of(const Round& round) {
  Tokens tokens;
  for (const RequestRow& row : round.rows) {
    tokens.prompt += row.prompt;
    tokens.output += row.output;
  }
  return tokens;
}

std::vector<Figure> figures_of(std::span<const Round> repeats, const std::string& suffix) {
  std::vector<Figure> figures;
  const auto add = [&](const std::string& name, const char* unit, const std::string& key, auto&& value) {
    Figure& figure = figures.emplace_back(Figure{{name + suffix, unit, {}}, key});
    for (const Round& round : repeats) figure.metric.values.push_back(value(round));
  };
  const auto per_second = [](const Round& round, auto count) {
    return static_cast<double>(count) / round.seconds;
  };
  add("out_tok_per_s", "tok/s", "output_throughput",
      [&](const Round& round) { return per_second(round, tokens_of(round).output); });
  add("total_tok_per_s", "tok/s", "tokens_per_second", [&](const Round& round) {
    return per_second(round, tokens_of(round).prompt + tokens_of(round).output);
  });
  add("req_per_s", "req/s", "requests_per_second",
      [&](const Round& round) { return per_second(round, round.requests); });
  add("elapsed_s", "s", "elapsed_time", [](const Round& round) { return round.seconds; });
  struct Time {
    std::string name, key;
    double RequestRow::*p50, RequestRow::*p99;
  };
  // Each request has quantiles of its own gaps: these are the medians of them, and their keys not vLLM's.
  const Time times[] = {{"ttft", "ttft", &RequestRow::ttft_s, &RequestRow::ttft_s},
                        {"tpot", "tpot", &RequestRow::tpot_s, &RequestRow::tpot_s},
                        {"itl", "itl", &RequestRow::itl_p50_s, &RequestRow::itl_p99_s},
                        {"e2e", "e2el", &RequestRow::e2e_s, &RequestRow::e2e_s}};
  for (const Time& time : times) {
    const bool of_gaps = time.p50 != time.p99;
    add(time.name + "_mean_ms", "ms", "mean_" + time.key + "_ms", [&](const Round& round) {
      return 1e3 * (of_gaps ? mean_gap(round) : mean(column_of(round, time.p50)));
    });
    add(time.name + "_p50_ms", "ms", (of_gaps ? "median_of_p50_" : "median_") + time.key + "_ms",
        [&](const Round& round) { return 1e3 * quantile(column_of(round, time.p50), 0.5); });
    add(time.name + "_p99_ms", "ms", (of_gaps ? "median_of_p99_" : "p99_") + time.key + "_ms",
        [&](const Round& round) { return 1e3 * quantile(column_of(round, time.p99), of_gaps ? 0.5 : 0.99); });
  }
  return figures;
}

const Figure& find(const std::vector<Figure>& figures, std::string_view name) {
  return *std::ranges::find_if(figures, [&](const Figure& figure) { return figure.metric.name == name; });
}

}  // namespace maniple
