// What the program says on stderr: errors, the banner of a run, its summary.
#pragma once

#include <kernels/support/check.hpp>
#include <parallel/world.hpp>
#include <runtime/engine.hpp>

#include <cstdint>
#include <string>

namespace maniple {

// On stderr, at once.
void say(const std::string& text);

// Empty for an end that nobody is there to hear of (closed_pipe). One block: what, why, what to try;
// `speaker`, as "rank 3 on nid0041", where it is not obvious who speaks.
std::string error_block(const Error& error, const std::string& speaker = {});

// What any exception means to users.
Error error_of(const std::exception& exception);

struct SeedReport {
  uint64_t value = 0;
  std::string_view origin = {};  // where nobody gave it
};

// "load 1.0 s, prefill ..."
std::string times_text(const RankTimes& times);
std::string banner(const EngineOptions& options, const JobPlan& plan, const EngineInfo& info,
                   const World& world, const SeedReport& seed);
// What a run directory keeps of a job that has ended by itself: JSON.
std::string run_record(const JobPlan& plan, const EngineInfo& info, const RunSummary& summary,
                       const World& world);
// done and failed: requests, those that the engine never saw among them. max_model_len: of prompt and
// completion.
std::string summary_text(const RunSummary& summary, size_t done, size_t failed, uint32_t max_model_len,
                         const std::vector<RankLocation>& locations);

}  // namespace maniple
