// The record of a job: what it says of the job, before and after its work. On rank 0.
#pragma once

#include <launch/record/provenance.hpp>
#include <launch/record/recorder.hpp>
#include <launch/start/start.hpp>
#include <runtime/engine.hpp>

#include <nlohmann/json.hpp>

#include <optional>

namespace maniple {

// What a record says of a job before its work.
struct JobOnRecord {
  std::string command;  // "bench load"
  const JobOptions& options;
  const World& world;
  const PlacedJob& placed;
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
  // The same of a bench, which has rows of its own.
  struct BenchRows {
    std::vector<SampleRow> samples{};
    std::vector<SummaryRow> medians{};
    std::vector<KernelRow> kernels{};
    std::vector<RooflineRow> roofline{};
    Texts texts{};
  };
  void complete(const RunSummary& summary, ExitCode code, const BenchRows& bench);

 private:
  std::optional<Recorder> recorder_;
};

}  // namespace maniple
