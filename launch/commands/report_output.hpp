// Where `report` writes.
#pragma once

#include <launch/options/report_options.hpp>

#include <filesystem>
#include <string>

namespace maniple {

struct Output {
  std::string text, json;
};

// Throws Error (input) where a file or a folder holds something.
void check_outputs(const ReportOptions& options);
// The text to stdout, unless the JSON goes there.
void print(const Output& output, const ReportOptions& options);

// A study alone: table, JSON, CSV, plots, requirements of every point.
void report_study(const ReportOptions& options);

}  // namespace maniple
