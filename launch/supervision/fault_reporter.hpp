// Reports what ended a job: one block on stderr, fault.json and STATUS in the run directory.
#pragma once

#include <launch/output/rank_log.hpp>
#include <launch/supervision/health_monitor.hpp>
#include <parallel/world.hpp>

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

class FaultReporter {
 public:
  // slurm_job: empty outside of Slurm. Both references must outlive it.
  FaultReporter(const World& world, std::string slurm_job, RankLog& log);

  // Set later, because faults may come before. folder: of this job in the run directory.
  void record_in(std::filesystem::path folder);
  void set_gpus(std::vector<std::string> uuids_of_ranks);

  // From any thread. Does not repeat a fault of another rank if fault.json of this job exists already.
  void report(const FaultReport& fault);

 private:
  bool is_first_on_record(const FaultReport& fault) const;
  void mark_run(ExitCode code) const;
  std::string fault_json(const FaultReport& fault) const;
  std::string fault_text(const FaultReport& fault) const;
  std::string name_of_rank(int rank) const;

  const World& world_;
  const int launcher_;  // its process id: if our parent is another process, the launcher is gone
  const std::string slurm_job_;
  RankLog& log_;
  std::mutex mutex_;
  std::filesystem::path folder_;
  std::vector<std::string> gpus_;
};

// fault.json of a job's folder as one line; nothing if there is none.
std::optional<std::string> read_fault(const std::filesystem::path& folder);

}  // namespace maniple
