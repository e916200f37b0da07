// What all benches share: repeats that all ranks make together, where the numbers go, and how the job stops.
#pragma once

#include <kernels/tensor/device.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/progress.hpp>
#include <launch/record/schema.hpp>
#include <launch/tools/analysis/summary.hpp>
#include <launch/tools/bench/verdict.hpp>
#include <launch/tools/options/bench_options.hpp>
#include <layers/models/cost.hpp>
#include <parallel/world.hpp>
#include <runtime/control/rank_activity.hpp>

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

// What was computed in a repeat, and in which time.
struct TimedWork {
  StepWork work;
  double seconds = 0;
};

// What a bench has measured.
struct BenchResult {
  nlohmann::ordered_json numbers;  // an object
  std::string last_line;           // of the table, with a line end
  Evidence evidence;
  std::vector<Metric> samples{};  // a value for each repeat
  RunSummary run{};               // of a bench that serves requests, like `work`: of its repeats
  std::vector<TimedWork> work{};
  std::vector<KernelRow> kernels{};
  std::vector<RooflineRow> roofline{};
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
  // Collective. The same for something short: a repeat makes so many calls that it takes about 10 ms. seconds_of(n): of one of
  // n calls in a row, on this rank.
  struct Calls {
    int count = 1;
    std::vector<double> seconds;  // of a call, in each repeat
  };
  std::optional<Calls> time_calls(const std::function<double(int)>& seconds_of);
  double slowest(double seconds);  // collective: the largest of all ranks
  uint64_t sum(uint64_t mine);     // collective

  // Throws Error (preflight) where the ranks of this node cannot have so much memory each: the system overcommits it, and would
  // kill them where they touch it. what: "messages of 1 GiB".
  void refuse_too_large(const Device& device, uint64_t bytes_of_a_rank, const std::string& what,
                        const std::string& why, const std::string& remedy) const;

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

// In a table: "12.34", "[12.10, 12.51]"; "-" for NaN.
std::string microseconds(double seconds);
std::string microseconds(const Interval& seconds);

}  // namespace maniple
