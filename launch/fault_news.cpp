#include <launch/fault_news.hpp>
#include <launch/option_names.hpp>
#include <launch/report.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/run_directory/run_lock.hpp>
#include <launch/run_directory/run_status.hpp>
#include <launch/signals.hpp>
#include <launch/text_files.hpp>

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <poll.h>
#include <unistd.h>

#include <ctime>
#include <utility>

namespace maniple {

namespace fs = std::filesystem;

namespace {

// As people count lines.
std::vector<uint64_t> counted_from_one(std::vector<uint64_t> requests) {
  for (uint64_t& request : requests) ++request;
  return requests;
}

std::string whereabouts_text(const Whereabouts& where) {
  if (where.phase == Phase::step) return fmt::format("step {}, layer {}", where.step, where.layer);
  return fmt::format("phase {}, after step {}", name_of(where.phase), where.step);
}

// A pipe that nobody reads takes nothing any more, for ever.
bool stderr_has_room() {
  pollfd polled{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLOUT) != 0;
}

}  // namespace

FaultNews::FaultNews(const World& world, std::string slurm_job, RankLog& log)
    : world_(world), launcher_(::getppid()), slurm_job_(std::move(slurm_job)), log_(log) {}

void FaultNews::record_in(fs::path folder) {
  const std::lock_guard lock(mutex_);
  folder_ = std::move(folder);
}

void FaultNews::know_gpus(std::vector<std::string> uuids_of_ranks) {
  const std::lock_guard lock(mutex_);
  gpus_ = std::move(uuids_of_ranks);
}

// A launcher that was told to end the job sends SIGTERM, and a second later kills rank by rank: no fault of
// theirs. What happened to this rank itself (a disk that does not answer) is said before it goes to the disk,
// unless stderr is what does not answer.
void FaultNews::tell(const FaultReport& fault) {
  if (fault.error.code() == reader_left) return;
  if (fault.death && sigterm_is_older_than(sigterm_kills_after)) return;
  const std::lock_guard lock(mutex_);
  const std::string text = text_of(fault);
  const bool own = fault.rank == fault.noticed_by, disk_can_wait = own && stderr_has_room();
  if (disk_can_wait) say(text);
  log_.write(text.substr(0, text.find('\n')));
  const bool first = is_first_on_record(fault);
  if (first && !own) say(text);
  if (first) mark_run(fault.error.code());
  if (own && !disk_can_wait) say(text);
}

// A later job, or an end that all agreed on, has the last word.
void FaultNews::mark_run(ExitCode code) const try {
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

bool FaultNews::is_first_on_record(const FaultReport& fault) const try {
  return folder_.empty() || create_file(folder_ / fault_record_name, json_of(fault) + '\n');
} catch (const std::exception&) {  // what cannot be recorded can still be said
  return true;
}

std::string FaultNews::json_of(const FaultReport& fault) const {
  const auto rank = static_cast<size_t>(fault.rank);
  return nlohmann::ordered_json{
      {"rank", fault.rank},
      {"host", world_.places()[rank].host},
      {"gpu", rank < gpus_.size() ? gpus_[rank] : ""},
      {"phase", name_of(fault.where.phase)},
      {"step", fault.where.step},
      {"layer", fault.where.layer},
      {"what", with_option_names(fault.error.what())},
      {"noticed_by", fault.noticed_by},
      {"requests", counted_from_one(fault.where.requests())},
      {"from_outside", fault.from_outside || (fault.death && ::getppid() != launcher_)},
      {"exit_code", static_cast<int>(fault.error.code())},
      {"time", std::time(nullptr)},
      {"job", slurm_job_}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // paths may not be UTF-8
}

std::string FaultNews::text_of(const FaultReport& fault) const {
  const bool of_another = fault.rank != fault.noticed_by && !fault.agreed;
  const Error& error = fault.error;
  const std::string speaker =
      fault.agreed || world_.size() == 1
          ? ""
          : fmt::format("{}{}", of_another ? "noticed by " : "", name_of_rank(fault.noticed_by));
  std::string text =
      error_block(of_another ? Error(error.code(),
                                     fmt::format("{} {} (last seen in {})", name_of_rank(fault.rank),
                                                 error.what(), whereabouts_text(fault.where)),
                                     error.why(), error.remedy())
                             : error,
                  speaker);
  if (fault.agreed) return text;
  if (!of_another) text += fmt::format("  when: in {}\n", whereabouts_text(fault.where));
  if (const auto requests = counted_from_one(fault.where.requests()); !requests.empty())
    text += fmt::format("  request{} in its step: {}{}\n", fault.where.running == 1 ? "" : "s",
                        fmt::join(requests, ", "),
                        requests.size() < fault.where.running
                            ? fmt::format(" and {} more", fault.where.running - requests.size())
                            : "");
  if (!slurm_job_.empty() && world_.places().back().node > 0)
    text += fmt::format("  to leave that node out: sbatch --exclude={} ...\n",
                        world_.places()[static_cast<size_t>(fault.rank)].host);
  return text;
}

std::string FaultNews::name_of_rank(int rank) const {
  return fmt::format("rank {} on {}", rank, world_.places()[static_cast<size_t>(rank)].host);
}

std::optional<std::string> read_fault(const fs::path& folder) try {
  const std::optional<std::string> text = read_if_there(folder / fault_record_name);
  if (!text) return std::nullopt;
  const auto fault = nlohmann::json::parse(*text);
  return fmt::format("rank {} on {}, in phase {}, step {}: {}", fault.at("rank").get<int>(),
                     fault.at("host").get<std::string>(), fault.at("phase").get<std::string>(),
                     fault.at("step").get<uint64_t>(), fault.at("what").get<std::string>());
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

}  // namespace maniple
