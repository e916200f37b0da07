#include <kernels/support/number_text.hpp>
#include <launch/tools/analysis/rank_table.hpp>
#include <launch/tools/analysis/recorded_ranks.hpp>
#include <launch/tools/analysis/statistics.hpp>
#include <launch/tools/analysis/stragglers.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace maniple {
namespace {

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

}  // namespace maniple
