#include <launch/output/report.hpp>
#include <launch/record/record_file.hpp>
#include <launch/record/recorder.hpp>

#include <algorithm>
#include <utility>

namespace maniple {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

void warn(const fs::path& file, const std::string& reason) {
  say(fmt::format("maniple: warning: the record {} ends here: {}\n  the job goes on without it\n",
                  file.string(), reason));
}

constexpr size_t rows_at_once = 256;

}  // namespace

Recorder::Recorder(const Options& options, RankSeries& series)
    : options_(options), series_(series), compact_at_(options.limit / 2) {
  try {
    fs::remove(options_.log);
    log_.emplace(options_.log, options_.limit);
    log_->flush();
  } catch (const std::exception& error) {
    warn(options_.file, error.what());
  }
}

Recorder::~Recorder() {
  writer_.reset();
  std::error_code ignored;
  if (!options_.keeps_unfinished) fs::remove(options_.log, ignored);
}

void Recorder::start() {
  series_.keep(Clock::now());
  writer_.emplace([this] { append(); });
}

void Recorder::step(const StepRow& row) {
  const std::lock_guard lock(mutex_);
  fresh_.steps.push_back(row);
}

void Recorder::request(const RequestRow& row) {
  const std::lock_guard lock(mutex_);
  fresh_.requests.push_back(row);
}

void Recorder::text(const std::string& name, const std::string& text) {
  attempt([&] { log_->text(name, text); });
}

void Recorder::attempt(const std::function<void()>& write) {
  if (!log_) return;
  try {
    write();
  } catch (const std::exception& error) {
    log_.reset();
    warn(options_.file, error.what());
  }
}

void Recorder::append() {
  Rows rows;
  {
    const std::lock_guard lock(mutex_);
    rows = std::exchange(fresh_, {});
  }
  attempt([&] {
    std::span<const StepRow> steps = rows.steps;
    for (; !steps.empty(); steps = steps.subspan(std::min(steps.size(), rows_at_once)))
      append_steps(steps.first(std::min(steps.size(), rows_at_once)));
    std::vector<RankSeriesRow> series = series_.take();
    std::erase_if(series, [&](const RankSeriesRow& row) { return !thinning_.keeps(row); });
    log_->rows(TableId::requests, std::span<const RequestRow>(rows.requests));
    log_->rows(TableId::rank_series, std::span<const RankSeriesRow>(series));
    log_->flush();
    if (Clock::now() - synced_ < options_.sync_interval) return;
    log_->sync();
    synced_ = Clock::now();
  });
}

void Recorder::append_steps(std::span<const StepRow> rows) {
  std::vector<StepRow> full_rows;
  for (const StepRow& row : rows)
    if (const std::optional<StepRow> full = thinning_.merged(row)) full_rows.push_back(*full);
  log_->rows(TableId::steps, std::span<const StepRow>(full_rows));
  if (log_->size() < compact_at_) return;
  thinning_.double_weight();
  log_->compact(thinning_.weight());
  // Again when an eighth of the limit is full of new rows: requests do not get fewer.
  compact_at_ = std::max(options_.limit / 2, log_->size() + options_.limit / 8);
}

void Recorder::drain() {
  writer_.reset();
  append();
  rows(TableId::steps, thinning_.rest());
}

void Recorder::complete() {
  options_.keeps_unfinished = true;  // also if it cannot be made a file
  attempt([&] {
    log_->complete();
    log_->sync();
    write_record_file(read_record_log(options_.log), options_.file);
    fs::remove(options_.log);
  });
}

}  // namespace maniple
