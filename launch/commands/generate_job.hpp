// Rank 0's part of `generate` around the engine: the input, where results go, the run directory.
#pragma once

#include <launch/input/followed_input.hpp>
#include <launch/input/request_feed.hpp>
#include <launch/options/options.hpp>
#include <launch/output/report.hpp>
#include <launch/output/results.hpp>
#include <launch/run_directory/run_directory.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <optional>
#include <string>

namespace maniple {

class GenerateJob {
 public:
  // Everything that can be wrong with files and options shows here, before anything is loaded. disk: tells of
  // every wait for the run directory or the output, as DiskWait has it.
  GenerateJob(const GenerateOptions& options, const JobPlan& plan, const std::string& host,
              const std::string& instruction_path, std::atomic<uint32_t>& disk);

  // The exit code, where earlier jobs have done it all: nothing is to be loaded.
  const std::optional<ExitCode>& already_over() const { return already_over_; }
  const SeedReport& seed() const { return seed_; }
  // Of this shard; of an input that is followed, those that have come.
  uint64_t requests() const { return options_.shard.share_of(requests_); }
  uint64_t done_before() const { return run_ ? run_->ledger().done() - retried() : 0; }
  // This job's, in the run directory; empty without one.
  std::filesystem::path folder() const;
  std::string start_note() const;   // may be empty, as the next one
  std::string resume_text() const;  // empty for a first start

  // About what this job will write into the run directory; 0 without one.
  uint64_t expected_bytes() const;
  // A text about this job, in its folder of the run directory; without one there is nothing to keep.
  void keep(const char* name, const std::string& text) const;

  // When the model is loaded: the old content of --out goes now. deaths_are_told: as RunStore has it.
  ResultStore& open_store(bool deaths_are_told);
  RequestReader::Lines lines();
  RequestReader::Options reader_options(const RankModel& model) const;

  // After the last result. Returns the exit code; `interrupted` is that of a run that cannot be resumed.
  ExitCode close(const RunSummary& summary, size_t failed, ExitCode interrupted, const std::string& record);
  // How the run stands after that, and where the results are; empty where they went to stdout.
  std::string outcome_text(ExitCode code) const;
  ExitCode shown(ExitCode code) const;  // what the process ends with
  // What was stored stays; the error that ends the job is the one to report.
  void give_up(ExitCode code);

 private:
  void open_run(const JobPlan& plan, const std::string& host, const std::string& instruction_path);
  void check_requests();
  SeedReport seed_of(const Manifest* there);
  std::string out_text(ExitCode code) const;
  uint64_t retried() const { return options_.retry_errors ? run_->ledger().failed() : 0; }

  GenerateOptions options_;
  ModelFiles files_;
  std::atomic<uint32_t>& disk_;
  std::optional<LineReader> input_;
  std::optional<FollowedInput> followed_;   // where lines come during the run
  std::optional<LineReader::Line> prompt_;  // where there is no input
  std::atomic<uint64_t> requests_ = 0;      // of the whole input
  uint64_t unlimited_chats_ = 0;            // of these
  std::string note_;                        // on what the input may have meant; mostly empty
  SeedReport seed_;
  std::time_t started_ = 0;  // of the run: what templates take for today
  std::optional<RunDirectory> run_;
  std::optional<RunStore> run_store_;
  std::optional<OutputFile> output_;
  std::optional<OrderedFile> ordered_;
  std::optional<ExitCode> already_over_;
};

}  // namespace maniple
