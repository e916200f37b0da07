#include <kernels/support/counted.hpp>
#include <launch/commands/commands.hpp>
#include <launch/options/grammar.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/progress.hpp>
#include <launch/output/report.hpp>
#include <launch/record/recorded_run.hpp>
#include <launch/run_directory/run_directory.hpp>
#include <launch/supervision/fault_reporter.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

namespace maniple {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;
namespace {

constexpr RunStatus fault_status{RunState::fault, static_cast<int>(ExitCode::fault)};

struct RunReport {
  RunStatus status;
  std::string text;
  json record;
};

std::string counts_text(const RunProgress& progress, const RunStatus& status) {
  std::string text = fmt::format("{} of {} done, {} failed", progress.done,
                                 counted(progress.requests, "request"), progress.failed);
  if (status.state == RunState::stopped)
    text += fmt::format(
        "; the same command again does the rest (sacct shows exit code {} as FAILED; --exit-zero-on-stop "
        "avoids that)",
        status.exit_code);
  if (status.state != RunState::running) return text;
  const auto age = static_cast<double>(std::time(nullptr) - progress.updated);
  text += fmt::format("; {:.0f} tok/s (avg {:.0f}), {} running", progress.tokens_per_second,
                      progress.average_tokens_per_second, progress.running);
  if (progress.seconds_left) text += ", ETA " + clock_text(*progress.seconds_left - age);
  if (progress.seconds_to_limit) text += ", limit in " + clock_text(*progress.seconds_to_limit - age);
  if (!progress.stall.empty()) text += ", STALL " + progress.stall;
  return text;
}

int64_t silence_of(const JobOwner& owner) { return std::time(nullptr) - owner.heartbeat / 1000; }

std::string check_alive(const JobOwner& owner, RunStatus& status) {
  const bool gone = !is_alive(owner);
  if (gone) status = fault_status;
  return fmt::format(
      "; {}, heard of {} s ago{}", owner.description(), silence_of(owner),
      gone ? ": it ended without a word (killed; or stopped by mpirun with one rank a node)" : "");
}

// About the last job; if that one was refused, or killed
// before it recorded its owner, about the one before it.
std::string job_text(const std::vector<fs::path>& folders, RunStatus& status) {
  if (folders.empty()) return {};
  const bool running = status.state == RunState::running;
  if (const std::optional<std::string> fault = read_fault(folders.back())) {
    if (running) status = fault_status;  // the rank that reported it was killed before it wrote STATUS
    return "; " + *fault;
  }
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
    if (const std::optional<JobOwner> owner = running_owner(*folder); running && owner)
      return check_alive(*owner, status);
  return {};
}

// A killed job may have done more than its last progress report says; the journals have the counts.
RunProgress counts_of(const fs::path& directory, const RunStatus& status, RunProgress told) {
  const bool exact = status.state == RunState::running || status.state == RunState::complete;
  const std::optional<Manifest> manifest = exact ? std::nullopt : Manifest::read(directory);
  if (!manifest) return told;
  Ledger ledger(manifest->number("requests"), shard_of(*manifest, directory));
  replay_journals(directory, ledger);
  told.requests = ledger.requests();
  told.done = ledger.done();
  told.failed = ledger.failed();
  return told;
}

// By sparse layer; null if there are none, and while a job runs.
json experts_of(const fs::path& directory, const RunStatus& status) {
  if (status.state == RunState::running) return {};
  const std::string text = read_optional_file(directory / experts_name).value_or("");
  json layers = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return layers.is_array() && !layers.empty() ? layers : json();
}

std::string experts_text(const json& layers) {
  if (layers.is_null()) return {};
  const auto imbalance = [](const json& layer) { return layer.value("imbalance", 0.0); };
  const json& worst = *std::ranges::max_element(layers, {}, imbalance);
  int64_t unused = 0;
  for (const json& layer : layers) unused += layer.value("unused", int64_t{0});
  return fmt::format("; experts: at most {:.1f} times the mean (layer {}), {} unused", imbalance(worst),
                     worst.value("layer", int64_t{0}), unused);
}

json record_of(const fs::path& directory, const RunStatus& status, const RunProgress& counts,
               const std::vector<fs::path>& folders) {
  json record = {{"directory", directory.string()},
                 {"state", name_of(status.state)},
                 {"exit_code", status.exit_code},
                 {"requests", counts.requests},
                 {"done", counts.done},
                 {"failed", counts.failed}};
  if (status.state == RunState::running) {
    record["running"] = counts.running;
    record["tokens_per_second"] = counts.tokens_per_second;
    record["average_tokens_per_second"] = counts.average_tokens_per_second;
    if (counts.seconds_left) record["seconds_left"] = *counts.seconds_left;
    if (counts.seconds_to_limit) record["seconds_to_limit"] = *counts.seconds_to_limit;
    if (!counts.stall.empty()) record["stall"] = counts.stall;
  }
  if (json experts = experts_of(directory, status); !experts.is_null())
    record["experts"] = std::move(experts);
  if (status.state == RunState::complete) record["results"] = (directory / results_name).string();
  if (folders.empty()) return record;
  if (const std::optional<JobOwner> owner = owner_of(folders.back()))
    record["job"] = {{"slurm_job", owner->job},
                     {"host", owner->host},
                     {"process", owner->pid},
                     {"silent_seconds", silence_of(*owner)}};
  const std::string fault = read_optional_file(folders.back() / fault_record_name).value_or("");
  if (json told = json::parse(fault, nullptr, /*allow_exceptions=*/false); told.is_object())
    record["fault"] = std::move(told);
  return record;
}

RunReport report_on(const fs::path& directory) {
  std::optional<RunStatus> status = read_status(directory);
  const std::optional<RunProgress> progress = read_progress(directory);
  if (!status || !progress)
    fail(ExitCode::input, "{} is no run directory, or its first job has not begun; see generate --run-dir",
         directory.string());
  const RunState told = status->state;
  const std::vector<fs::path> folders = job_folders(directory);
  const std::string job = job_text(folders, *status);
  // The job may have ended by itself after STATUS was read; then job_text looked at an older job.
  if (status->state != told)
    if (const auto now = read_status(directory); !now || now->state != told) return report_on(directory);
  const RunProgress counts = counts_of(directory, *status, *progress);
  return {*status,
          fmt::format("{}: {}, {}{}{}", directory.string(), name_of(status->state),
                      counts_text(counts, *status), experts_text(experts_of(directory, *status)), job),
          record_of(directory, *status, counts, folders)};
}

// The higher, the worse: complete, running, stopped, fault.
std::pair<int, int> severity(const RunStatus& status) {
  constexpr std::array<int, 4> of_state = {1, 0, 2, 3};  // in the order of RunState
  return {of_state[static_cast<size_t>(status.state)], status.exit_code};
}

struct Survey {
  RunStatus worst{RunState::complete, 0};
  bool any_running = false;
  bool unreadable = false;
};

// Prints an error for a directory that is no run directory, and shows the others.
Survey show(const StatusOptions& options) {
  Survey survey;
  for (const fs::path& directory : options.run_dirs) try {
      const RunReport report = report_on(directory);
      survey.any_running |= report.status.state == RunState::running;
      survey.worst = std::max(survey.worst, report.status, [](const RunStatus& one, const RunStatus& other) {
        return severity(one) < severity(other);
      });
      fmt::print("{}\n", options.json ? report.record.dump(-1, ' ', false, json::error_handler_t::replace)
                                      : report.text);
    } catch (const Error& error) {
      survey.unreadable = true;
      say(error_block(error));
    }
  flush_stdout();
  return survey;
}

}  // namespace

Parsed<StatusOptions> parse_status(Grammar& grammar, Words args, const Launch& /*launch*/) {
  StatusOptions options;
  std::vector<std::string> words;
  grammar.take_words(words);
  grammar.group("Status");
  std::optional<std::string> run_dir;
  grammar.add("run-dir", path("DIR", run_dir), "the same as the word DIR");
  grammar.add("rc", on(options.rc), "exit with the code of the run's last job; of several runs, the worst");
  grammar.add("watch", on(options.watch), "a line every two seconds until the job ends");
  grammar.add("json", on(options.json), "a JSON object a line");
  if (const auto help = grammar.parse(args)) return Notice{*help};
  options.run_dirs.assign(words.begin(), words.end());
  if (run_dir) options.run_dirs.emplace_back(*run_dir);
  if (options.run_dirs.empty()) refuse("status takes run directories", "maniple status DIR...");
  return options;
}

ExitCode run_status(const StatusOptions& options) {
  Survey survey = show(options);
  while (options.watch && survey.any_running) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    survey = show(options);
  }
  if (survey.unreadable) return ExitCode::input;
  return options.rc ? static_cast<ExitCode>(survey.worst.exit_code) : ExitCode::complete;
}

}  // namespace maniple
