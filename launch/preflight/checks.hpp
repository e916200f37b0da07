// What may be wrong with a launch, told before weights are read: pure functions of what all ranks know.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/options.hpp>
#include <launch/preflight/facts.hpp>
#include <runtime/job_plan.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// A note is for who asks (doctor), a refusal ends the job.
enum class Severity : uint8_t { note, warning, refusal };

struct Finding {
  Severity severity = Severity::note;
  std::string what;
  std::string why;
  std::string remedy;
};

struct Situation {
  JobOptions options;  // with the kind of backend that all ranks agreed on
  JobPlan plan;
  std::vector<Place> places;
  std::vector<RankFacts> ranks;
  uint64_t results_bytes = 0;          // that the run directory will need; 0: not known
  std::optional<double> seconds_left;  // until the job stops itself

  bool cuda_build = true;

  size_t size() const { return ranks.size(); }
  // A build without CUDA says so itself.
  bool on_gpus() const { return cuda_build && options.engine.backend.kind == BackendKind::cuda; }
  // The GPU that a rank will take; null where it sees none for it.
  const GpuFacts* gpu_of(size_t rank) const;
};

struct CheckResult {
  std::string_view name;
  std::optional<Finding> finding;
};
// Of every check that applies, in the order in which they are to be read. A check has one finding at most.
std::vector<CheckResult> run_checks(const Situation& situation);

// "warning: ..." with why and try below.
std::string finding_block(const Finding& finding);
bool has_refusal(const std::vector<CheckResult>& results);
// Throws the first refusal as an Error (preflight), if there is one.
void refuse(const std::vector<CheckResult>& results);

}  // namespace maniple
