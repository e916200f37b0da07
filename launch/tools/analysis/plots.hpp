// Scripts for gnuplot beside the CSV files that they read.
#pragma once

#include <launch/record/record_log.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace maniple {

// folder/NAME.gp for each plot that the record has rows for; run in that folder, each writes NAME.svg. Returns the names.
// Throws Error (fault).
std::vector<std::string> write_plot_scripts(const Record& record, const std::filesystem::path& folder,
                                            const std::string& title);

}  // namespace maniple
