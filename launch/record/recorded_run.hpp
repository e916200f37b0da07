// What was recorded of a run: by the jobs of its run directory, one after the other, or in a single file.
#pragma once

#include <launch/record/record_file.hpp>
#include <launch/run_directory/run_lock.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

struct RecordedJob {
  std::string name;            // "job 3", or the file
  std::filesystem::path file;  // that was read: HDF5 or a log
  Record record;
  bool running = false;             // as far as its run directory can tell
  std::optional<double> missing_s;  // from the last row to the last heartbeat, of a job that did not end
};

struct RecordedRun {
  std::string name;  // the path that was given
  std::vector<RecordedJob> jobs;
};

// path: a run directory, the folder of a job, or a record; for a.h5 that is not there, the log a.h5.log of a job that has not
// ended. Jobs of a run directory that recorded nothing are left out.
// Throws Error (input) where nothing was recorded.
RecordedRun read_run(const std::filesystem::path& path);

// Whether its job is heard of. Compares clocks of different machines, so it allows more silence than a takeover does.
bool is_alive(const JobOwner& owner);
// A log that --pack turns into a file.
bool is_log(const RecordedJob& job);

// The numbers of a field; none where the record has no such table.
std::vector<double> column(const Record& record, std::string_view table, std::string_view field);
std::vector<double> column(const RecordedRun& run, std::string_view table,
                           std::string_view field);  // of all jobs
// "INVALID: 3 wrong values", of a bench; else empty.
std::string verdict_of(const Record& record);
// The time of the last row, in seconds since the job began to serve; 0 without rows.
double last_row_s(const Record& record);

// "did not end: ..." or "is running: ..."; empty for a job that ended by itself.
std::string ending_text(const RecordedJob& job);
// Whether the job had not ended when half of the record's limit was full: /steps and /rank_series end before it.
bool steps_end_early(const Record& record);

}  // namespace maniple
