#include <launch/options/option_names.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/report.hpp>
#include <launch/process/signals.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/run_directory/run_lock.hpp>
#include <launch/run_directory/run_status.hpp>
#include <launch/supervision/fault_reporter.hpp>
#include <runtime/scheduling/step_runner.hpp>

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <poll.h>
#include <unistd.h>

#include <ctime>
#include <utility>

namespace maniple {

namespace fs = std::filesystem;

namespace {

// Messages count requests from 1, like lines.
std::vector<uint64_t> counted_from_one(std::vector<uint64_t> requests) {
  for (uint64_t& request : requests) ++request;
  return requests;
}

std::string last_seen_text(const Heartbeat& last) {
  if (last.phase == Phase::step && last.layer >= in_graph)
    return fmt::format("step {}, a graph for {} sequences", last.step, last.layer - in_graph);
  if (last.phase == Phase::step) return fmt::format("step {}, layer {}", last.step, last.layer);
  return fmt::format("phase {}, after step {}", name_of(last.phase), last.step);
}

// A full pipe that nobody reads would block for ever.
bool stderr_has_room() {
  pollfd polled{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLOUT) != 0;
}

}  // namespace

FaultReporter::FaultReporter(const World& world, std::string slurm_job, RankLog& log)
    : world_(world), launcher_(::getppid()), slurm_job_(std::move(slurm_job)), log_(log) {}

void FaultReporter::record_in(fs::path folder) {
  const std::lock_guard lock(mutex_);
  folder_ = std::move(folder);
}

void FaultReporter::set_gpus(std::vector<std::string> uuids_of_ranks) {
  const std::lock_guard lock(mutex_);
  gpus_ = std::move(uuids_of_ranks);
}

// A launcher that ends the job sends SIGTERM, and a second later kills rank by
// rank: such deaths are no fault of the ranks. A fault of this rank itself (a disk
// that does not answer) goes to stderr before the disk, unless stderr blocks.
void FaultReporter::report(const FaultReport& fault) {
  if (fault.error.code() == closed_pipe) return;
  if (fault.death && sigterm_is_older_than(sigterm_kills_after)) return;
  const std::lock_guard lock(mutex_);
  const std::string text = fault_text(fault);
  const bool own = fault.rank == fault.noticed_by, disk_can_wait = own && stderr_has_room();
  if (disk_can_wait) say(text);
  log_.write(text.substr(0, text.find('\n')));
  const bool first = is_first_on_record(fault);
  if (first && !own) say(text);
  if (first) mark_run(fault.error.code());
  if (own && !disk_can_wait) say(text);
}

// Keeps the STATUS of a later job, or of an end that all ranks know of.
void FaultReporter::mark_run(ExitCode code) const try {
  if (folder_.empty()) return;
  const fs::path run = folder_.parent_path().parent_path();
  const std::optional<RunStatus> status = read_status(run);
  const std::vector<fs::path> jobs = job_folders(run);
  const bool under_way =
      status && (status->state == RunState::running ||
                 (status->state == RunState::stopped && !exists(folder_ / job_record_name)));
  if (under_way && !jobs.empty() && jobs.back() == folder_)
    write_status(run, {RunState::fault, static_cast<int>(code)});
} catch (const std::exception&) {  // the disk may be the fault
}

bool FaultReporter::is_first_on_record(const FaultReport& fault) const try {
  return folder_.empty() || create_file(folder_ / fault_record_name, fault_json(fault) + '\n');
} catch (const std::exception&) {  // a fault that cannot be recorded is still printed
  return true;
}

std::string FaultReporter::fault_json(const FaultReport& fault) const {
  const auto rank = static_cast<size_t>(fault.rank);
  return nlohmann::ordered_json{
      {"rank", fault.rank},
      {"host", world_.locations()[rank].host},
      {"gpu", rank < gpus_.size() ? gpus_[rank] : ""},
      {"phase", name_of(fault.last_seen.phase)},
      {"step", fault.last_seen.step},
      {fault.last_seen.layer < in_graph ? "layer" : "graph", fault.last_seen.layer % in_graph},
      {"what", with_option_names(fault.error.what())},
      {"noticed_by", fault.noticed_by},
      {"requests", counted_from_one(fault.last_seen.requests())},
      {"from_outside", fault.from_outside || (fault.death && ::getppid() != launcher_)},
      {"exit_code", static_cast<int>(fault.error.code())},
      {"time", std::time(nullptr)},
      {"job", slurm_job_}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // paths may not be UTF-8
}

std::string FaultReporter::fault_text(const FaultReport& fault) const {
  const bool of_another = fault.rank != fault.noticed_by && !fault.known_to_all;
  const Error& error = fault.error;
  const std::string speaker =
      fault.known_to_all || world_.size() == 1
          ? ""
          : fmt::format("{}{}", of_another ? "noticed by " : "", name_of_rank(fault.noticed_by));
  std::string text =
      error_block(of_another ? Error(error.code(),
                                     fmt::format("{} {} (last seen in {})", name_of_rank(fault.rank),
                                                 error.what(), last_seen_text(fault.last_seen)),
                                     error.why(), error.remedy())
                             : error,
                  speaker);
  if (fault.known_to_all) return text;
  if (!of_another) text += fmt::format("  when: in {}\n", last_seen_text(fault.last_seen));
  if (const auto requests = counted_from_one(fault.last_seen.requests()); !requests.empty())
    text += fmt::format("  request{} in its step: {}{}\n", fault.last_seen.running == 1 ? "" : "s",
                        fmt::join(requests, ", "),
                        requests.size() < fault.last_seen.running
                            ? fmt::format(" and {} more", fault.last_seen.running - requests.size())
                            : "");
  if (!slurm_job_.empty() && world_.locations().back().node > 0)
    text += fmt::format("  to leave that node out: sbatch --exclude={} ...\n",
                        world_.locations()[static_cast<size_t>(fault.rank)].host);
  return text;
}

std::string FaultReporter::name_of_rank(int rank) const {
  return fmt::format("rank {} on {}", rank, world_.locations()[static_cast<size_t>(rank)].host);
}

std::optional<std::string> read_fault(const fs::path& folder) try {
  const std::optional<std::string> text = read_optional_file(folder / fault_record_name);
  if (!text) return std::nullopt;
  const auto fault = nlohmann::json::parse(*text);
  return fmt::format("rank {} on {}, in phase {}, step {}: {}", fault.at("rank").get<int>(),
                     fault.at("host").get<std::string>(), fault.at("phase").get<std::string>(),
                     fault.at("step").get<uint64_t>(), fault.at("what").get<std::string>());
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

}  // namespace maniple
