// bench throughput and bench latency: requests served by the engine that `generate` has.
#pragma once

#include <launch/tools/bench/bench_job.hpp>
#include <launch/tools/bench/workload.hpp>
#include <runtime/engine.hpp>

namespace maniple {

struct ServingBench {
  BenchJob& job;
  Engine& engine;
  const JobPlan& plan;
  const Workload& workload;  // on rank 0
  RunObserver* record;       // gets the rows of the repeats that count; may be null
};

// Both are collective. Nothing after a stop, and on other ranks than 0.
std::optional<BenchResult> bench_throughput(const ServingBench& bench);
std::optional<BenchResult> bench_latency(const ServingBench& bench);

}  // namespace maniple
