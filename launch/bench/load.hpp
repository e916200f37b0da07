// bench load: the time in which all ranks read a model, by the code that `generate` reads it with.
#pragma once

#include <launch/bench/bench_job.hpp>
#include <runtime/job_plan.hpp>
#include <runtime/shared_model.hpp>

namespace maniple {

// A model that serves nothing: the smallest batch, cache and scratch. To be called before and after the plan
// is made.
void serve_nothing(EngineOptions& engine);
void shrink_cache(EngineOptions& engine, const JobPlan& plan);

// Collective. Nothing after a stop.
std::optional<BenchResult> bench_load(BenchJob& job, const JobPlan& plan, const EngineOptions& engine,
                                      const SharedModel& model);

}  // namespace maniple
