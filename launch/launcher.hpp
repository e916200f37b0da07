// Who started this process, as far as its environment tells, without asking MPI.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace maniple {

struct Launch {
  bool by_mpi = false;  // MPI_Init will find the other ranks
  int rank = 0;         // good enough to decide who prints
  // As far as the launcher tells: of the job step, a name that no other on a node has at this time.
  std::string step;
  int ranks = 0;
  std::optional<int> local_rank;
  int local_size = 0;
  std::string job;  // of Slurm, as squeue names it; a task of an array is 12_3
  std::optional<std::chrono::system_clock::time_point> job_end;
  bool requeued = false;   // Slurm has started this job before
  int het_components = 1;  // of a heterogeneous Slurm job
  // To wait after MPI_Init, where that may not have waited for all ranks.
  std::chrono::milliseconds settle{0};
  std::string nccl_off_fabric;  // the setting that keeps NCCL on sockets: "NCCL_IB_DISABLE=1"; may be empty
  int slurm_tasks = 1;          // of this job step: more than one without MPI ranks is a launch mistake
};

// lookup: the value of an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Launch detect_launch(const Environment& lookup);

// What `srun --mpi=list` says, in a line: "none, pmi2, pmix".
std::string mpi_plugins(const std::string& list);

// Throws Error (preflight) when Slurm started several tasks and MPI sees one rank in each: every task would
// do the whole job. mpi_list: asks srun what the site offers.
void check_launch(const Launch& launch, int mpi_ranks, const std::function<std::string()>& mpi_list);

}  // namespace maniple
