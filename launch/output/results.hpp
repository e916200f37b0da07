// Renders and stores completions on the writer's thread, in a run directory or in one ordered file.
#pragma once

#include <launch/input/request_feed.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/progress.hpp>
#include <launch/output/writer_thread.hpp>
#include <launch/run_directory/run_directory.hpp>
#include <runtime/requests.hpp>

#include <atomic>
#include <map>
#include <string>
#include <unordered_map>

namespace maniple {

// Stores the result lines. Used by one thread.
class ResultStore {
 public:
  virtual ~ResultStore() = default;
  virtual void started(RequestId /*request*/, bool /*alone*/) {}
  virtual void stopping() {}
  virtual void finished(RequestId request, bool failed, std::string line) = 0;
  // The beginning of a line that finished() ends.
  virtual void begun(std::string_view /*part*/) {}
  // Called now and then while there is nothing to do.
  virtual void idle(const JobProgress& /*progress*/) {}
  virtual bool has_room() const { return true; }  // from any thread
};

// One file in the order of the input. A line is written when all lines before it are written.
class OrderedFile : public ResultStore {
 public:
  OrderedFile(OutputFile& file, const Shard& shard) : file_(file), shard_(shard), turn_(shard.index) {}

  void finished(RequestId request, bool failed, std::string line) override;
  void begun(std::string_view part) override { file_.write(part); }
  bool has_room() const override { return held_bytes_ < max_held_bytes; }
  // Call after the last result: writes the lines that still wait for an earlier one.
  void write_held();

 private:
  static constexpr size_t max_held_bytes = size_t{64} << 20;

  OutputFile& file_;
  Shard shard_;
  RequestId turn_;
  std::map<RequestId, std::string> held_;  // lines that wait for an earlier one
  std::atomic<size_t> held_bytes_ = 0;
};

class RunStore : public ResultStore {
 public:
  // peers_report_deaths: the ranks report a death before the launcher's SIGTERM arrives.
  RunStore(RunDirectory& run, bool peers_report_deaths) : run_(run), deaths_are_told_(peers_report_deaths) {}

  void started(RequestId request, bool alone) override;
  void stopping() override { run_.stopping(deaths_are_told_); }
  void finished(RequestId request, bool failed, std::string line) override;
  void idle(const JobProgress& progress) override { run_.tick(progress); }

 private:
  RunDirectory& run_;
  bool deaths_are_told_;
};

// The engine's side: takes completions and never waits for a disk. Throws the store's errors.
class Results : public CompletionSink, public RequestOrder {
 public:
  // bare: only the text of completions, no JSON. tokenizer may be null;
  // it and the store must outlive this. at_work: see WriterThread.
  Results(ResultStore& store, const Tokenizer* tokenizer, bool bare,
          std::atomic<uint32_t>* at_work = nullptr);

  void expect(RequestId request, const RequestLabel& label) override { labels_.emplace(request, label); }
  void refuse(RequestId request, const std::string& reason) override;
  void start_alone(RequestId request) override;
  size_t unfinished() const override { return labels_.size(); }
  bool has_room() const override {
    return writer_.waiting() < max_waiting && waiting_bytes_ < max_waiting_bytes && store_.has_room();
  }
  void started(RequestId request) override;
  void generated(RequestId request, std::string_view text) override;  // only for a single bare request
  void stopping() override;
  void finished(FinishedRequest completion) override;

  void progress(const JobProgress& progress);
  // Returns when all completions taken so far are stored.
  void drain() { writer_.drain(); }

  size_t done() const { return done_; }
  size_t failed() const { return failed_; }
  size_t cut_at_default() const {
    return cut_at_default_;
  }  // answers to plain prompts, by a limit that nobody stated
  const std::string& last_error() const { return last_error_; }

 private:
  static constexpr size_t max_waiting = 4096;
  static constexpr size_t max_waiting_bytes = size_t{32} << 20;

  void store(const RequestLabel& label, FinishedRequest completion);

  ResultStore& store_;
  const Tokenizer* tokenizer_;
  bool bare_;
  std::unordered_map<RequestId, RequestLabel> labels_;  // of requests that have not ended
  size_t done_ = 0;
  size_t failed_ = 0;
  size_t cut_at_default_ = 0;
  std::string last_error_;
  std::atomic<size_t> waiting_bytes_ = 0;  // of completions that are not stored yet
  size_t streamed_ = 0;                    // the writer thread's: bytes of bare text already written
  JobProgress progress_;                   // the writer thread's
  WriterThread writer_;                    // last: it uses the others
};

}  // namespace maniple
