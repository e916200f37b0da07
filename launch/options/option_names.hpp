// What the command line calls the fields that texts below launch/ name.
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

// As plan_job. Throws an Error (usage; input where the model is the limit) that says the refusal in options.
JobPlan plan_or_refuse(std::span<const RankLocation> locations, const EngineOptions& options,
                       const ModelConfig* config = nullptr);

}  // namespace maniple
