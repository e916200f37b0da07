// A summary for people, and as JSON.
#pragma once

#include <launch/analysis/statistics.hpp>
#include <launch/analysis/summary.hpp>

#include <string>

namespace maniple {

std::string summary_text(const RecordedRun& run, const Summary& summary);
// One line. The keys of vLLM's benchmarks where the meaning is the same; null: not recorded.
std::string summary_json(const RecordedRun& run, const Summary& summary);

// Four digits or so; "-" for NaN.
std::string number_text(double number);
std::string size_text(double bytes);
// "250.3 [247.9, 252.0]"; without an interval the number alone.
std::string interval_text(const Interval& interval);

}  // namespace maniple
