// A scaling study for people, as JSON, as CSV, and as plots.
#pragma once

#include <launch/tools/analysis/scaling.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace maniple {

std::string scaling_text(const ScalingResult& result);
std::string scaling_json(const ScalingResult& result, const std::string& name);

// folder/scaling.csv, the numbers of the table. The folder must exist. Throws Error (fault).
void write_scaling_csv(const ScalingResult& result, const std::filesystem::path& folder);
// folder/NAME.gp of the speed-up and the efficiency, which read this table. Returns the names. Throws Error (fault).
std::vector<std::string> write_scaling_scripts(const ScalingResult& result,
                                               const std::filesystem::path& folder);

}  // namespace maniple
