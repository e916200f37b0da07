// A summary for people, and as JSON.
#pragma once

#include <kernels/support/number_text.hpp>
#include <launch/tools/analysis/statistics.hpp>
#include <launch/tools/analysis/summary.hpp>

#include <string>

namespace maniple {

std::string summary_text(const RecordedRun& run, const Summary& summary);
// One line. The keys of vLLM's benchmarks where the meaning is the same; null: not recorded.
std::string summary_json(const RecordedRun& run, const Summary& summary);

std::string limits_text(const Interval& interval);  // "[247.9, 252.0]"
// "250.3 [247.9, 252.0]"; without an interval the number alone.
std::string interval_text(const Interval& interval);

}  // namespace maniple
