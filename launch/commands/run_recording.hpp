// The record of a job: what it says of the job, before and after its work. On rank 0.
#pragma once

#include <launch/bench/bench_job.hpp>
#include <launch/preflight/job_facts.hpp>
#include <launch/record/provenance.hpp>
#include <launch/record/recorder.hpp>
#include <runtime/engine.hpp>

#include <optional>

namespace maniple {

// What a record says of a job before its work.
struct JobOnRecord {
  std::string command;        // "bench load"
  const JobOptions& options;  // in force
  const World& world;
  const JobFacts& facts;
  DType dtype = DType::bf16;
  const EngineInfo* engine = nullptr;  // null: no engine serves
  std::optional<uint64_t> input_hash{};
  std::optional<uint64_t> seed{};
};

// What every record of a job says: program, grid, level of reproducibility.
nlohmann::ordered_json facts_json(const JobPlan& plan, const World& world);
// The JSON record that a run directory keeps of a job that has ended by itself.
std::string run_record(const JobPlan& plan, const EngineInfo& info, const RunSummary& summary,
                       const World& world);

class RunRecording {
 public:
  // Records nothing without files. The series must outlive it.
  RunRecording(const std::optional<Recorder::Options>& files, const JobOnRecord& job, RankSeries& series);

  RunObserver* observer() { return recorder_ ? &*recorder_ : nullptr; }  // null: nothing is recorded
  // The job has ended by itself, after its results were stored.
  void complete(const RunSummary& summary, ExitCode code);
  void complete(const BenchResult& result, const Verdict& verdict, ExitCode code);

 private:
  void complete(const RunSummary& summary, ExitCode code, const std::vector<SampleRow>& samples,
                const std::vector<SummaryRow>& medians, Texts texts);

  std::optional<Recorder> recorder_;
};

}  // namespace maniple
