// Writes the record of a job while it runs, on rank 0. The thread that serves requests only copies rows; another one appends
// them to the log. A disk that takes no more ends the record, never the job.
#pragma once

#include <launch/output/writer_thread.hpp>
#include <launch/record/rank_series.hpp>
#include <launch/record/record_log.hpp>
#include <runtime/control/observer.hpp>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

class Recorder : public RunObserver {
 public:
  struct Options {
    std::filesystem::path file;          // record.h5
    std::filesystem::path log;           // replaced if it is there; removed when the file is
    uint64_t limit = uint64_t{1} << 30;  // bytes of the log; at half of it steps and the series end
    std::chrono::milliseconds sync_interval{5000};
    bool keeps_unfinished = true;  // the log stays if the job is stopped or fails
  };
  // series: of this rank, must outlive it.
  Recorder(const Options& options, RankSeries& series);
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  // From here on rows of steps, requests and the series are written, on a thread of their own.
  void start();

  // These return at once.
  void step(const StepRow& row) override;
  void request(const RequestRow& row) override;
  // Before start() or after drain(): written by the caller's thread.
  void text(const std::string& name, const std::string& text);
  template <typename Row>
  void rows(TableId table, const std::vector<Row>& rows) {
    attempt([&] { log_->rows(table, std::span<const Row>(rows)); });
  }

  // Call after the last row. Returns when the rows are in the log; texts and rows may follow.
  void drain();
  // The job has ended by itself: makes the HDF5 file and removes the log.
  void complete();

 private:
  struct Rows {
    std::vector<StepRow> steps;
    std::vector<RequestRow> requests;
  };
  void append();  // what has come since the last call
  void attempt(const std::function<void()>& write);
  void append_while_half_empty(std::span<const StepRow> steps, std::span<const RankSeriesRow> series);

  Options options_;
  RankSeries& series_;
  std::mutex mutex_;
  Rows fresh_;
  // The writer's:
  double steps_until_s_ = 0;  // the last answer in the log
  bool half_full_ = false;    // steps and the series have ended
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
  std::optional<RecordLogWriter> log_;  // none: the record has ended early
  std::optional<WriterThread> writer_;  // last: it uses the others
};

}  // namespace maniple
