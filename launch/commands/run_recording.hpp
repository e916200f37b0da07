// The record of a generate job: what it says of the job, before and after the requests are served. On rank 0.
#pragma once

#include <launch/commands/generate_job.hpp>
#include <launch/preflight/job_facts.hpp>
#include <launch/record/recorder.hpp>
#include <runtime/engine.hpp>

#include <optional>

namespace maniple {

class RunRecording {
 public:
  // Records nothing where the options say so. The references must outlive it.
  RunRecording(const GenerateOptions& options, const World& world, const JobPlan& plan, const JobFacts& facts,
               const RankModel& model, GenerateJob& job, RankSeries& series);

  RunObserver* observer() { return recorder_ ? &*recorder_ : nullptr; }  // null: nothing is recorded
  // The job has ended by itself, after its results were stored.
  void complete(const RunSummary& summary, ExitCode code);

 private:
  std::optional<Recorder> recorder_;
};

}  // namespace maniple
