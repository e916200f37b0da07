// What the program prints on stderr: errors, the banner of a run, its summary.
#pragma once

#include <kernels/support/check.hpp>
#include <parallel/world.hpp>
#include <runtime/engine.hpp>

#include <cstdint>
#include <string>

namespace maniple {

// On stderr, at once.
void say(const std::string& text);

// One block: what, why, what to try; empty for closed_pipe. speaker:
// "rank 3 on nid0041", where it is not obvious which rank reports.
std::string error_block(const Error& error, const std::string& speaker = {});

// The Error to show users for any exception.
Error error_of(const std::exception& exception);

struct SeedReport {
  uint64_t value = 0;
  std::string_view origin = {};  // set if the user gave none
};

// "load 1.0 s, prefill ..."
std::string times_text(const RankTimes& times);
std::string banner(const EngineOptions& options, const JobPlan& plan, const EngineInfo& info,
                   const World& world, const SeedReport& seed);
// The load of the experts, a JSON list by sparse layer.
std::string experts_json(const std::vector<ExpertLoad>& loads);
// done, failed: numbers of requests, including those that never
// reached the engine. max_model_len: of prompt and completion.
std::string summary_text(const RunSummary& summary, size_t done, size_t failed, uint32_t max_model_len,
                         const std::vector<RankLocation>& locations);

}  // namespace maniple
