#include <kernels/support/check.hpp>
#include <launch/record/recorded_run.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace maniple {

namespace fs = std::filesystem;

namespace {

double unix_time(fs::file_time_type time) {
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch()).count();
}

void judge_end(RecordedJob& job, const fs::path& folder) {
  const std::optional<JobOwner> owner = owner_of(folder);
  if (!owner || job.record.complete) return;
  job.running = running_owner(folder) && is_alive(*owner);
  std::error_code no_log;
  const auto written = fs::last_write_time(folder / record_log_name, no_log);
  if (!no_log)
    job.missing_s = std::max(static_cast<double>(owner->heartbeat) / 1000 - unix_time(written), 0.0);
}

RecordedJob read_job(const fs::path& file, std::string name) {
  RecordedJob job{std::move(name), file, read_record(file), false, {}};
  judge_end(job, file.parent_path());
  return job;
}

std::optional<fs::path> record_in(const fs::path& folder) {
  for (const char* const name : {record_file_name, record_log_name})
    if (fs::exists(folder / name)) return folder / name;
  return std::nullopt;
}

}  // namespace

RecordedRun read_run(const fs::path& path) {
  RecordedRun run{path.string(), {}};
  const fs::path log = path.string() + ".log";
  if (!fs::is_directory(path)) {
    run.jobs.push_back(read_job(fs::exists(path) || !fs::exists(log) ? path : log, path.string()));
  } else if (const std::optional<fs::path> record = record_in(path)) {
    run.jobs.push_back(read_job(*record, path.string()));
  } else {
    for (const fs::path& folder : job_folders(path))
      if (const std::optional<fs::path> of_job = record_in(folder))
        run.jobs.push_back(read_job(*of_job, "job " + folder.filename().string()));
  }
  if (run.jobs.empty())
    throw Error(ExitCode::input, fmt::format("{} has no record", path.string()),
                "it is no run directory, or its jobs ran with --record off",
                "give a run directory, the folder of one of its jobs, or a record (.h5 or .log)");
  return run;
}

bool is_alive(const JobOwner& owner) {
  constexpr double longest_silence = 60;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return !looks_gone(owner) && now.count() - static_cast<double>(owner.heartbeat) / 1000 < longest_silence;
}

bool is_log(const RecordedJob& job) { return job.file.extension() != ".h5"; }

std::vector<double> column(const Record& record, std::string_view table, std::string_view field) {
  const StoredTable* const stored = record.find(table);
  return stored ? stored->column(field) : std::vector<double>();
}

std::vector<double> column(const RecordedRun& run, std::string_view table, std::string_view field) {
  std::vector<double> all;
  for (const RecordedJob& job : run.jobs)
    std::ranges::copy(column(job.record, table, field), std::back_inserter(all));
  return all;
}

std::string verdict_of(const Record& record) {
  const std::string verdict = text_in(record, "verdict"), reason = text_in(record, "verdict_reason");
  return reason.empty() ? verdict : fmt::format("{}: {}", verdict, reason);
}

double last_row_s(const Record& record) {
  double last = 0;
  for (const auto& [table, field] :
       {std::pair("steps", "answered_s"), {"requests", "done_s"}, {"rank_series", "t_s"}})
    for (const double time : column(record, table, field)) last = std::max(last, std::isnan(time) ? 0 : time);
  return last;
}

bool steps_end_early(const Record& record) { return record.texts.contains("steps_until_s"); }

std::string ending_text(const RecordedJob& job) {
  if (job.record.complete) return {};
  const std::string read =
      fmt::format("read as far as it goes, to {:.1f} s after it began to serve", last_row_s(job.record));
  if (job.running) return fmt::format("{} is running: {}", job.name, read);
  const std::string missing =
      job.missing_s ? fmt::format("; the {:.1f} s to its last heartbeat are missing", *job.missing_s) : "";
  return fmt::format("{} did not end: {}{}", job.name, read, missing);
}

}  // namespace maniple
