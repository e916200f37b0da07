// Messages of the folders below launch/ name fields; this replaces the fields by options.
#pragma once

#include <kernels/support/check.hpp>
#include <runtime/job_plan.hpp>

#include <span>
#include <string>

namespace maniple {

// Fields in back quotes (`kv_memory`) become options (--kv-memory).
std::string with_option_names(std::string text);

// "1, 2, 4 or 8"
std::string alternatives(std::span<const int> numbers);

// Like plan_job, but throws an Error (usage; input if the model is the limit) that names options.
JobPlan plan_or_refuse(std::span<const RankLocation> locations, const EngineOptions& options,
                       const ModelConfig* config = nullptr);

}  // namespace maniple
