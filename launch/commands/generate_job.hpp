// Rank 0's part of `generate` around the engine: the input, where results go, the run directory.
#pragma once

#include <launch/commands/commands.hpp>
#include <launch/input/followed_input.hpp>
#include <launch/input/request_feed.hpp>
#include <launch/output/report.hpp>
#include <launch/output/results.hpp>
#include <launch/record/recorder.hpp>
#include <launch/run_directory/run_directory.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <optional>
#include <string>

namespace maniple {

class GenerateJob {
 public:
  // Throws on everything that is wrong with files and options, before anything
  // is loaded. disk: DiskWait's counter, for the run directory and the output.
  GenerateJob(const GenerateOptions& options, const JobPlan& plan, const std::string& host,
              std::atomic<uint32_t>& disk);

  // The exit code if earlier jobs have done all requests. Then nothing needs to be loaded.
  const std::optional<ExitCode>& already_over() const { return already_over_; }
  const SeedReport& seed() const { return seed_; }
  // Where the job is recorded: --record, else in folder(), else nowhere.
  std::optional<Recorder::Options> recording() const;
  // Absent for a prompt, a pipe and stdin.
  std::optional<uint64_t> input_hash();
  // Of this shard; with --follow the requests that have arrived.
  uint64_t requests() const { return options_.shard.share_of(requests_); }
  uint64_t done_before() const { return run_ ? run_->ledger().done() - retried() : 0; }
  // This job's folder in the run directory; empty without one.
  std::filesystem::path folder() const;
  std::string start_note() const;   // may be empty
  std::string resume_text() const;  // empty for a first start

  // Estimate of what this job will write into the run directory; 0 without one.
  uint64_t expected_bytes() const;
  // Writes a file into this job's folder; does nothing without a run directory.
  void write_job_file(const char* name, const std::string& text) const;

  // Call when the model is loaded: empties the file of --out. peers_report_deaths: see RunStore.
  ResultStore& open_store(bool peers_report_deaths);
  RequestReader::Lines lines();
  RequestReader::Options reader_options(const RankModel& model) const;
  // Every chat sees the time at which its run began, also after a resume on another day.
  RenderChat renderer() const;

  // Call after the last result. Returns the exit code.
  ExitCode close(const RunSummary& summary, size_t failed, const std::string& record);
  // The state of the run after close(), and where the results are; empty if they went to stdout.
  std::string outcome_text(ExitCode code) const;
  ExitCode process_exit_code(ExitCode code) const;  // the exit code of the process
  // Keeps what was stored, and ignores errors: the caller reports the error that ends the job.
  void give_up(ExitCode code);

 private:
  void open_run(const JobPlan& plan, const std::string& host);
  void check_requests();
  SeedReport seed_of(const Manifest* there);
  std::string out_text(ExitCode code) const;
  uint64_t retried() const { return options_.retry_errors ? run_->ledger().failed() : 0; }

  const GenerateOptions& options_;
  ModelFiles files_;
  std::atomic<uint32_t>& disk_;
  std::optional<LineReader> input_;
  std::optional<FollowedInput> followed_;   // with --follow
  std::optional<LineReader::Line> prompt_;  // with --prompt
  std::atomic<uint64_t> requests_ = 0;      // of the whole input
  uint64_t unlimited_chats_ = 0;            // of these
  std::string note_;                        // about raw text for a chat model; mostly empty
  SeedReport seed_;
  std::time_t started_ = 0;  // of the run: the date that templates see
  std::optional<RunDirectory> run_;
  std::optional<RunStore> run_store_;
  std::optional<OutputFile> output_;
  std::optional<OrderedFile> ordered_;
  std::optional<ExitCode> already_over_;
};

}  // namespace maniple
