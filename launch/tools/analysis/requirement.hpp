// Numbers that must hold of a run.
#pragma once

#include <launch/tools/analysis/summary.hpp>

#include <string>

namespace maniple {

// A number that must hold of a run: "out_tok_per_s>=250", or "out_tok_per_s>=0.98x" of the run that it is compared with.
struct Requirement {
  std::string text, metric;
  bool at_least = true;  // else at most
  double bound = 0;
  bool relative = false;
};

// Throws Error: some_requests_failed where the requirement is missed, input where the run has no such metric. a: what a
// relative one refers to; else null.
void check_requirement(const Requirement& requirement, const Summary* a, const Summary& b);

}  // namespace maniple
