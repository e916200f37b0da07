// The tables of a record as files that every spreadsheet, pandas and gnuplot read.
#pragma once

#include <launch/record/record_log.hpp>

#include <filesystem>

namespace maniple {

// folder/TABLE.csv for each table that has rows: a line of the fields' names, then a line a row. Numbers are the shortest that
// read back as the same; NaN is empty. The folder must exist. Throws Error (fault).
void write_csv(const Record& record, const std::filesystem::path& folder);

}  // namespace maniple
