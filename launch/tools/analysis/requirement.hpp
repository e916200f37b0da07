// Numbers that must hold of a run.
#pragma once

#include <launch/tools/analysis/summary.hpp>
#include <launch/tools/options/report_options.hpp>

namespace maniple {

// Throws Error: some_requests_failed where the requirement is missed, input where the run has no such metric. a: what a
// relative one refers to; else null.
void check_requirement(const Requirement& requirement, const Summary* a, const Summary& b);

}  // namespace maniple
