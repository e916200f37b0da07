#include <kernels/support/check.hpp>
#include <launch/launcher.hpp>

#include <charconv>

namespace maniple {

namespace {

int number_or(const std::optional<std::string>& text, int fallback) {
  int value = fallback;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

}  // namespace

// Inside a job script SLURM_PROCID is there too, but only a job step has SLURM_STEP_NUM_TASKS > 1 tasks that
// run this program.
Launch detect_launch(const Environment& lookup) {
  Launch launch;
  launch.job = lookup("SLURM_JOB_ID").value_or("");
  launch.slurm_tasks = number_or(lookup("SLURM_STEP_NUM_TASKS"), 1);
  launch.by_mpi = lookup("OMPI_COMM_WORLD_SIZE") || lookup("PMIX_RANK") || lookup("PMI_RANK");
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const auto rank = lookup(name)) {
      launch.rank = number_or(rank, 0);
      return launch;
    }
  if (launch.slurm_tasks > 1) launch.rank = number_or(lookup("SLURM_PROCID"), 0);
  return launch;
}

void check_launch(const Launch& launch, int mpi_ranks) {
  if (mpi_ranks > 1 || launch.slurm_tasks <= 1) return;
  throw Error(
      ExitCode::preflight,
      fmt::format("{} copies were started, but MPI sees 1 rank in each", launch.slurm_tasks),
      "srun did not offer PMIx, so that every copy would do the whole job and write the same output",
      "srun --mpi=pmix ... (srun --mpi=list shows what this site offers), or mpirun inside the allocation");
}

}  // namespace maniple
