// bench load: the time in which all ranks read a model, by the code that `generate` reads it with.
#pragma once

#include <launch/start/start.hpp>
#include <launch/tools/bench/bench_job.hpp>

namespace maniple {

// Collective. Nothing after a stop.
std::optional<BenchResult> bench_load(BenchJob& job, const PlacedJob& placed);

}  // namespace maniple
