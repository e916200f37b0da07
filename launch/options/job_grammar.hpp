// Declarations of options that several commands share. The caller may add more options to the last group.
#pragma once

#include <launch/options/grammar.hpp>
#include <launch/options/job_options.hpp>

namespace maniple {

Value<std::string> dtype(std::optional<DType>& target);
void add_rank_options(Grammar& grammar, JobOptions& options);
// if_no_model: what to type; null: the model may be left out.
void add_model_options(Grammar& grammar, JobOptions& options, const char* if_no_model);
void add_engine_options(Grammar& grammar, EngineOptions& engine);
void add_stop_options(Grammar& grammar, JobOptions& options);
// After parsing: sets the fields that follow from the options of the ranks, and from the launch.
void settle(JobOptions& options, const Grammar& grammar, const Launch& launch);

}  // namespace maniple
