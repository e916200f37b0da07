// Checks of a launch before weights are read: pure functions of the facts of all ranks.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/preflight/job_facts.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// Only doctor shows notes. A refusal ends the job.
enum class Severity : uint8_t { note, warning, refusal };

struct Finding {
  Severity severity = Severity::note;
  std::string what;
  std::string why;
  std::string remedy;
};

struct CheckResult {
  std::string_view name;
  std::optional<Finding> finding;
};
// The results of all checks that apply, in reading order. A check has one finding at most.
std::vector<CheckResult> run_checks(const JobFacts& job);

// "warning: ..." with why and try below.
std::string finding_block(const Finding& finding);
bool has_refusal(const std::vector<CheckResult>& results);
// Throws the first refusal as an Error (preflight), if there is one.
void throw_refusal(const std::vector<CheckResult>& results);

}  // namespace maniple
