// What all benches share: repeats that all ranks make together, where the numbers go, and how the job stops.
#pragma once

#include <launch/analysis/summary.hpp>
#include <launch/bench/verdict.hpp>
#include <launch/options/options.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/progress.hpp>
#include <parallel/world.hpp>
#include <runtime/control/rank_activity.hpp>

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

// What a bench has measured.
struct BenchResult {
  nlohmann::ordered_json numbers;  // an object
  std::string last_line;           // of the table, with a line end
  Evidence evidence;
  std::vector<Metric> samples{};  // a value for each repeat
  RunSummary run{};               // of a bench that serves requests
};

class BenchJob {
 public:
  // Collective. Rank 0 refuses (input) an output that holds something or cannot be written.
  BenchJob(World& world, const BenchOptions& options, RankActivity& activity);

  World& world() { return world_; }
  const BenchOptions& options() const { return options_; }
  RankActivity& activity() { return activity_; }

  // Collective: all ranks leave it at about the same time. False from then on when rank 0 was asked to stop
  // or cannot print.
  bool goes_on();
  // Collective. Warm-up and repeats of `once`, which returns the seconds of this rank. The seconds of the
  // slowest rank in each repeat that counts; nothing after a stop.
  std::optional<std::vector<double>> repeat(const std::function<double()>& once);
  double slowest(double seconds);  // collective: the largest of all ranks
  uint64_t sum(uint64_t mine);     // collective

  // Rank 0 writes, the others do nothing. Lines of the table go to stdout, or to stderr where stdout gets the
  // JSON.
  void print(const std::string& lines);
  void progress(size_t done, size_t all, const std::string& what);
  // As in generate. seconds: since the engine began to serve.
  void progress(const Progress& engine, const JobCounts& counts, double seconds);
  // Rank 0. Throws CollectiveError if this or an earlier print() failed: call it when no rank waits for rank
  // 0.
  void write_json(const nlohmann::ordered_json& json);
  void check_output() const;

 private:
  World& world_;
  const BenchOptions& options_;
  RankActivity& activity_;
  std::optional<OutputFile> stdout_;  // rank 0
  std::optional<Error> failure_;      // of stdout
  std::optional<ProgressLine> line_;  // rank 0, unless quiet
};

}  // namespace maniple
