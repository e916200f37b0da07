// Who started this process, as far as its environment tells, without asking MPI.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// A launcher that sets these variables in its processes; srun is recognised separately.
struct Launcher {
  const char* size_variable;  // the number of processes that it started
  const char* rank_variable;
  std::string_view name;
  std::string_view for_open_mpi;  // what makes it start programs of Open MPI; empty: nothing does
};

struct Launch {
  bool under_mpi = false;  // MPI_Init will find the other ranks
  int rank = 0;            // good enough to decide who prints
  // If the launcher tells: of the job step, a name that no other step on a node has at this time.
  std::string step;
  int ranks = 0;
  std::optional<int> local_rank;
  int local_size = 0;
  std::string job;  // of Slurm, as squeue names it; a task of an array is 12_3
  std::optional<std::chrono::system_clock::time_point> job_end;
  bool requeued = false;   // Slurm has started this job before
  int het_components = 1;  // of a heterogeneous Slurm job
  // Wait this long after MPI_Init, which may not have waited for all ranks.
  std::chrono::milliseconds settle{0};
  bool nccl_shares_gpus = false;  // NCCL is asked to let ranks have the same GPU, as it can from 2.30 on
  std::string nccl_off_fabric;    // the setting that keeps NCCL on sockets: "NCCL_IB_DISABLE=1"; may be empty
  // Copies that the nearest launcher started. Several copies without MPI
  // between them are a launch mistake. launcher: null for srun or none.
  int copies = 1;
  const Launcher* launcher = nullptr;
  // Tasks of the Slurm allocation, if only the job's own shell or a step of one task started us.
  int allocated_tasks = 1;
  int cpus_per_task = 0;                 // as requested for the allocation; 0: not known
  std::vector<std::string> environment;  // set by main: NAME=value, as it was before MPI_Init
};

// lookup: the value of an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Launch detect_launch(const Environment& lookup);

// The plugins in the output of `srun --mpi=list`, on one line: "none, pmi2, pmix".
std::string mpi_plugins(const std::string& list);

// Throws Error (preflight) if several copies were started and MPI sees one rank in each: every copy would do
// the whole job. mpi: the MPI of this build, "Open MPI v4.1.4". mpi_list: asks srun what the site offers.
void check_launch(const Launch& launch, int mpi_ranks, const std::string& mpi,
                  const std::function<std::string()>& mpi_list);

}  // namespace maniple
