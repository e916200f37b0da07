#include <kernels/support/number_text.hpp>
#include <launch/tools/analysis/recorded_ranks.hpp>
#include <launch/tools/analysis/row_tables.hpp>
#include <launch/tools/analysis/statistics.hpp>
#include <launch/tools/analysis/stragglers.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

namespace maniple {
namespace {

std::string percent(double part, double whole) {
  return std::isnan(part / whole) ? "-" : fmt::format("{:.1f}", 100 * part / whole);
}

// Of the record's fields, those that a row of several steps has in sums.
constexpr std::array summed = {"weight",   "tokens",     "forward_s", "comm_s",
                               "sample_s", "schedule_s", "transit_s"};

// Steps with about as many sequences.
struct StepGroup {
  std::vector<double> ms, weights;
  std::map<std::string, double> sums;  // by field
  double seconds = 0, slots = 0, kv_tokens = 0;

  double mean(const char* field) const { return sums.at(field) / sums.at("weight"); }
  std::string share(const char* field) const { return percent(sums.at(field), seconds); }
};

// By the power of two that a step's sequences reach. A row of several steps has the blocks of the last one.
using StepGroups = std::map<uint64_t, StepGroup>;

void add_steps(const Record& record, StepGroups& groups) {
  const std::vector<double> seconds = step_seconds(record);
  const auto of = [&](const char* field) { return column(record, "steps", field); };
  const std::vector<double> weight = of("weight"), sequences = of("sequences"), planned = of("planned_s"),
                            answered = of("answered_s"), held = of("held_blocks"), kv = of("kv_tokens");
  std::map<std::string, std::vector<double>> columns;
  for (const char* const field : summed) columns[field] = of(field);
  const double block_size = block_size_of(record);
  for (size_t row = 0; row < seconds.size(); ++row) {
    if (!(weight[row] >= 1)) continue;
    StepGroup& group =
        groups[std::bit_floor(static_cast<uint64_t>(std::clamp(sequences[row] / weight[row], 0.0, 1e15)))];
    group.ms.push_back(1e3 * seconds[row]);
    group.weights.push_back(weight[row]);
    for (const auto& [field, values] : columns) group.sums[field] += values[row];
    group.seconds += answered[row] - planned[row];
    group.slots += weight[row] * held[row] * block_size;
    group.kv_tokens += weight[row] * kv[row];
  }
}

std::string row_of(uint64_t from, const StepGroup& group) {
  const auto at = [&](double p) { return number_text(quantile(group.ms, group.weights, p)); };
  const std::string sequences = from < 2 ? fmt::format("{}", from) : fmt::format("{}-{}", from, 2 * from - 1);
  return fmt::format("{:>13} {:>8.0f} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
                     sequences, group.sums.at("weight"), at(0.5), at(0.9), at(0.99),
                     number_text(group.mean("tokens")), group.share("forward_s"), group.share("comm_s"),
                     group.share("sample_s"), group.share("schedule_s"), group.share("transit_s"),
                     percent(group.slots - group.kv_tokens, group.slots));
}

std::string quantile_row(const char* name, const Quantiles& values) {
  return fmt::format("{:<18} {:>9} {:>9} {:>9} {:>9}\n", name, number_text(values.p50),
                     number_text(values.p90), number_text(values.p99), number_text(values.max));
}

std::string slowest_text(const RecordedRun& run) {
  constexpr size_t most = 10;
  constexpr std::array counts = {"id", "replica", "prompt", "output", "preemptions"};
  constexpr std::array times = {"queue_s", "ttft_s", "tpot_s", "e2e_s"};
  std::map<std::string, std::vector<double>> columns;
  for (const auto& names : {std::span<const char* const>(counts), std::span<const char* const>(times)})
    for (const char* const name : names) columns[name] = column(run, "requests", name);
  const std::vector<double>& e2e = columns["e2e_s"];
  std::vector<size_t> rows;
  for (size_t row = 0; row < e2e.size(); ++row)
    if (!std::isnan(e2e[row])) rows.push_back(row);
  std::ranges::stable_sort(rows, std::greater{}, [&](size_t row) { return e2e[row]; });
  rows.resize(std::min(rows.size(), most));
  std::string text =
      fmt::format("# slowest {:>6} {:>7} {:>7} {:>7} {:>11} {:>9} {:>9} {:>9} {:>9}   (s)\n", "id", "replica",
                  "prompt", "output", "preemptions", "queue", "TTFT", "TPOT", "e2e");
  for (const size_t row : rows) {
    text += fmt::format("{:>16.0f} {:>7.0f} {:>7.0f} {:>7.0f} {:>11.0f}", columns["id"][row],
                        columns["replica"][row], columns["prompt"][row], columns["output"][row],
                        columns["preemptions"][row]);
    for (const char* const name : times) text += fmt::format(" {:>9}", number_text(columns[name][row]));
    text += '\n';
  }
  return text;
}

// Own time is no field.
double own_of(const RecordedRank& rank) { return rank.own_s(); }

std::string row_of(const RecordedRank& rank) {
  std::string row = fmt::format("{:>6} {:<16} {:>3} {:>3}", rank.rank, rank.host, rank.tensor, rank.data);
  for (const RankMeasure& phase : rank_phases) row += fmt::format(" {:>8}", number_text(rank.*phase.field));
  row += fmt::format(" {:>8}", number_text(own_of(rank)));
  for (const RankMeasure& memory : rank_memory) row += fmt::format(" {:>11}", bytes_text(rank.*memory.field));
  return row + '\n';
}

std::string caption() {
  std::string row = fmt::format("{:>6} {:<16} {:>3} {:>3}", "# rank", "node", "tp", "dp");
  for (const RankMeasure& phase : rank_phases) row += fmt::format(" {:>8}", phase.name);
  row += fmt::format(" {:>8}", "own");
  for (const RankMeasure& memory : rank_memory) row += fmt::format(" {:>11}", memory.name);
  return row + "   (s; own: without communication)\n";
}

// The largest value over the mean or the median, by column.
std::string imbalance_row(const std::vector<RecordedRank>& ranks, std::string_view what, auto&& middle_of) {
  const auto share = [&](auto&& value_of) {
    std::vector<double> values;
    for (const RecordedRank& rank : ranks) values.push_back(value_of(rank));
    const double middle = middle_of(values);
    return middle > 0 ? fmt::format("{:.2f}", quantile(values, 1) / middle) : std::string("-");
  };
  std::string row = fmt::format("{:<31}", what);
  for (const RankMeasure& phase : rank_phases)
    row += fmt::format(" {:>8}", share([&](const RecordedRank& rank) { return rank.*phase.field; }));
  row += fmt::format(" {:>8}", share(own_of));
  for (const RankMeasure& memory : rank_memory)
    row += fmt::format(" {:>11}", share([&](const RecordedRank& rank) { return rank.*memory.field; }));
  return row + '\n';
}

std::string place_of(const RecordedRank& rank) { return fmt::format("rank {} on {}", rank.rank, rank.host); }

// Who had room for the fewest KV blocks: the others of its replica have as many.
std::string blocks_text(const std::vector<RecordedRank>& ranks) {
  const auto least = std::ranges::min_element(ranks, {}, [](const RecordedRank& rank) {
    return std::isnan(rank.fitting_blocks) ? HUGE_VAL : rank.fitting_blocks;
  });
  if (least == ranks.end() || std::isnan(least->fitting_blocks)) return {};
  const auto has_fewest = [&](const RecordedRank& rank) {
    return rank.fitting_blocks == least->fitting_blocks;
  };
  if (std::ranges::all_of(ranks, has_fewest))
    return fmt::format("KV blocks: every rank had room for {:.0f}\n", least->fitting_blocks);
  return fmt::format("KV blocks: {} set their number: it had room for {:.0f}, another one for {:.0f}\n",
                     place_of(*least), least->fitting_blocks,
                     std::ranges::max(ranks, {}, &RecordedRank::fitting_blocks).fitting_blocks);
}

std::string straggler_text(const Straggler& straggler, const std::vector<RecordedRank>& ranks) {
  const RecordedRank& rank = *std::ranges::find(ranks, straggler.rank, &RecordedRank::rank);
  return fmt::format(
      "slow: {}: own time {:.2f} x that of the others of its tensor group, from {:.0f} s to {:.0f} s ({} "
      "windows); to leave that node out: --exclude={}\n",
      place_of(rank), straggler.ratio, straggler.from_s, straggler.to_s, straggler.windows, rank.host);
}

}  // namespace

std::string rank_table_text(const RecordedJob& job) {
  const std::vector<RecordedRank> ranks = recorded_ranks(job.record);
  if (ranks.empty()) return fmt::format("{}: nothing was recorded of its ranks\n", job.name);
  std::string text = caption();
  for (const RecordedRank& rank : ranks) text += row_of(rank);
  text += imbalance_row(ranks, "max/mean", mean);
  text += imbalance_row(ranks, "max/median",
                        [](const std::vector<double>& values) { return quantile(values, 0.5); });
  text += blocks_text(ranks);
  const std::vector<Straggler> stragglers = slow_ranks(job.record);
  for (const Straggler& straggler : stragglers) text += straggler_text(straggler, ranks);
  if (stragglers.empty()) text += "slow: none\n";
  return text;
}

std::string step_table_text(const RecordedRun& run) {
  StepGroups groups;
  for (const RecordedJob& job : run.jobs) add_steps(job.record, groups);
  if (groups.empty()) return fmt::format("{}: no steps were recorded\n", run.name);
  std::string text = fmt::format(
      "# {:>11} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}   (ms; % of plan to "
      "answer, comm is in forward; % of slots)\n",
      "sequences", "steps", "p50", "p90", "p99", "tokens", "forward", "comm", "sample", "schedule", "transit",
      "empty");
  for (const auto& [from, group] : groups) text += row_of(from, group);
  return text;
}

std::string request_table_text(const RecordedRun& run, const Summary& summary) {
  if (summary.requests == 0) return fmt::format("{}: no requests were recorded\n", run.name);
  std::string text =
      fmt::format("# {:<16} {:>9} {:>9} {:>9} {:>9}\n", "requests", "p50", "p90", "p99", "max");
  for (const auto& [name, times] : {std::pair("queue (ms)", summary.queue_ms),
                                    {"TTFT (ms)", summary.ttft_ms},
                                    {"TPOT (ms)", summary.tpot_ms},
                                    {"ITL (ms)", summary.itl_ms},
                                    {"end-to-end (ms)", summary.e2e_ms}})
    text += quantile_row(name, times);
  text += quantile_row("prompt (tokens)", quantiles_of(column(run, "requests", "prompt")));
  text += quantile_row("output (tokens)", quantiles_of(column(run, "requests", "output")));
  return text + slowest_text(run);
}

std::string fom_text(const Summary& summary) {
  const Metric* metric = summary.find("out_tok_per_s");
  if (!metric && !summary.metrics.empty()) metric = &summary.metrics.front();
  if (!metric) return {};
  const std::string unit = metric->unit == "tok/s" ? "tokens/s" : metric->unit;
  return fmt::format("fom: {} = {}{}{}\n", metric->name, number_text(metric->median()),
                     unit.empty() ? "" : " ", unit);
}

}  // namespace maniple
