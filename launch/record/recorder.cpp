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

}  // namespace

Recorder::Recorder(const Options& options, RankSeries& series) : options_(options), series_(series) {
  try {
    fs::remove(options_.log);
    log_.emplace(options_.log);
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
  const std::vector<RankSeriesRow> series = series_.take();
  attempt([&] {
    append_while_half_empty(rows.steps, series);
    log_->rows(TableId::requests, std::span<const RequestRow>(rows.requests));
    log_->flush();
    if (Clock::now() - synced_ < options_.sync_interval) return;
    log_->sync();
    synced_ = Clock::now();
  });
}

// The other half of the limit is for requests and the tables at the end.
void Recorder::append_while_half_empty(std::span<const StepRow> steps,
                                       std::span<const RankSeriesRow> series) {
  if (half_full_) return;
  half_full_ = log_->size() + steps.size_bytes() + series.size_bytes() > options_.limit / 2;
  if (half_full_) return log_->text("steps_until_s", fmt::format("{:.1f}", steps_until_s_));
  log_->rows(TableId::steps, steps);
  log_->rows(TableId::rank_series, series);
  for (const StepRow& row : steps) steps_until_s_ = std::max(steps_until_s_, row.answered_s);
}

void Recorder::drain() {
  writer_.reset();
  append();
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
