#include <launch/record/recorded_run.hpp>
#include <launch/tools/analysis/recorded_ranks.hpp>
#include <launch/tools/analysis/statistics.hpp>

#include <cmath>
#include <map>

namespace maniple {
namespace {

// By the names of the record.
const std::vector<RankMeasure> recorded_measures = [] {
  std::vector<RankMeasure> measures = {{"", "steps", &RecordedRank::steps},
                                       {"", "rss_bytes", &RecordedRank::rss_peak_bytes},
                                       {"", "node_j", &RecordedRank::node_j},
                                       {"", "fitting_blocks", &RecordedRank::fitting_blocks}};
  measures.insert(measures.end(), rank_phases.begin(), rank_phases.end());
  measures.insert(measures.end(), rank_memory.begin(), rank_memory.end());
  return measures;
}();

// -1 for what no rank, node or place can be: a file may hold anything.
int whole(double number) { return number >= 0 && number < INT32_MAX ? static_cast<int>(number) : -1; }

RecordedRank nothing_of(int rank) {
  RecordedRank totals{};
  totals.rank = rank;
  for (const RankMeasure& measure : recorded_measures) totals.*measure.field = not_measured;
  return totals;
}

// Rows of a rank come in the order of time, so the last one wins.
void take(std::map<int, RecordedRank>& ranks, const Record& record, const char* table) {
  const std::vector<double> numbers = column(record, table, "rank");
  for (const double number : numbers) ranks.try_emplace(whole(number), nothing_of(whole(number)));
  for (const RankMeasure& measure : recorded_measures) {
    const std::vector<double> values = column(record, table, measure.recorded_as);
    for (size_t row = 0; row < values.size(); ++row)
      if (!std::isnan(values[row])) ranks.at(whole(numbers[row])).*measure.field = values[row];
  }
}

void take_places(std::map<int, RecordedRank>& ranks, const Record& record) {
  const StoredTable* const table = record.find("topology");
  if (!table) return;
  const std::vector<double> numbers = table->column("rank");
  const auto place = [&](const char* field, int RecordedRank::*target) {
    const std::vector<double> values = table->column(field);
    for (size_t row = 0; row < values.size(); ++row)
      ranks.at(whole(numbers[row])).*target = whole(values[row]);
  };
  for (size_t row = 0; row < numbers.size(); ++row) {
    const int rank = whole(numbers[row]);
    ranks.try_emplace(rank, nothing_of(rank)).first->second.host = table->text_at("host", row);
  }
  place("node", &RecordedRank::node);
  place("local_rank", &RecordedRank::local_rank);
  place("tensor", &RecordedRank::tensor);
  place("pipeline", &RecordedRank::pipeline);
  place("data", &RecordedRank::data);
}

}  // namespace

std::vector<RecordedRank> recorded_ranks(const Record& record) {
  std::map<int, RecordedRank> ranks;
  take_places(ranks, record);
  take(ranks, record, "rank_series");
  take(ranks, record, "ranks");
  std::vector<RecordedRank> list;
  for (auto& [rank, totals] : ranks) list.push_back(std::move(totals));
  return list;
}

std::vector<double> values_of(const std::vector<RecordedRank>& ranks, double RecordedRank::*field) {
  std::vector<double> values;
  for (const RecordedRank& rank : ranks) values.push_back(rank.*field);
  return values;
}

Energy energy_of(const std::vector<RecordedRank>& ranks) {
  std::map<int, double> nodes;  // NaN until a rank of the node could read it
  for (const RecordedRank& totals : ranks) {
    double& joules = nodes.try_emplace(totals.node, not_measured).first->second;
    if (std::isnan(joules)) joules = totals.node_j;
  }
  Energy energy{static_cast<int>(nodes.size()), 0, 0};
  for (const auto& [node, joules] : nodes)
    if (!std::isnan(joules)) {
      ++energy.readable;
      energy.joules += joules;
    }
  return energy;
}

}  // namespace maniple
