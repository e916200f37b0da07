#include <kernels/support/check.hpp>
#include <launch/process/launcher.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

namespace maniple {
namespace {

constexpr Launcher open_mpi{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun of another MPI", ""};
constexpr std::array other_launchers{
    Launcher{"PALS_LOCAL_SIZE", "PALS_RANKID", "PALS", "mpiexec --pmi=pmix ..."},
    Launcher{"FLUX_JOB_SIZE", "FLUX_TASK_RANK", "Flux", "flux run -o pmi=pmix ..."},
    Launcher{"PMI_SIZE", "PMI_RANK", "mpiexec of another MPI (MPICH, Intel MPI, Cray MPICH)", ""}};

template <typename T>
T number_or(const std::optional<std::string>& text, T fallback) {
  T value = fallback;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

// The last task of an array has the array's number as its SLURM_JOB_ID.
std::string slurm_job(const Environment& lookup) {
  const auto array = lookup("SLURM_ARRAY_JOB_ID"), task = lookup("SLURM_ARRAY_TASK_ID");
  if (array && task) return fmt::format("{}_{}", *array, *task);
  return lookup("SLURM_JOB_ID").value_or("");
}

std::string nccl_off_fabric(const Environment& lookup) {
  if (lookup("NCCL_NET") == "Socket") return "NCCL_NET=Socket";
  const std::string disabled = lookup("NCCL_IB_DISABLE").value_or("0");
  return disabled == "0" ? "" : "NCCL_IB_DISABLE=" + disabled;
}

// The last fence of MPI_Init carries no data. If a job has fewer nodes than TreeWidth, Slurm's
// PMIx (20.11 to 26.05) does not wait for other nodes in such a fence, unless all fences are
// rings. Open MPI's TCP transport crashes in a rank that gets a message before it is ready.
std::chrono::milliseconds time_to_settle(const Environment& lookup) {
  const bool early = lookup("PMIX_NAMESPACE").value_or("").starts_with("slurm.pmix") &&
                     lookup("SLURM_NNODES") != "1" && lookup("SLURM_PMIX_FENCE") != "ring";
  return std::chrono::milliseconds(early ? 500 : 0);
}

// "2(x3),1": three nodes with two tasks each, then one with one.
int tasks_on(int node, const std::string& tasks_per_node) {
  std::istringstream list(tasks_per_node);
  for (std::string entry; std::getline(list, entry, ',');) {
    const size_t times = entry.find("(x");
    node -= times == std::string::npos ? 1 : number_or(std::optional(entry.substr(times + 2)), 1);
    if (node < 0) return number_or(std::optional(entry), 0);
  }
  return 0;
}

// Under mpirun Slurm's variables describe mpirun's daemons, which srun may have started.
void read_place(Launch& launch, const Environment& lookup) {
  const bool by_mpirun = lookup("OMPI_COMM_WORLD_RANK").has_value();
  const auto local_rank = lookup(by_mpirun ? "OMPI_COMM_WORLD_LOCAL_RANK" : "SLURM_LOCALID");
  if (local_rank) launch.local_rank = number_or(local_rank, 0);
  launch.ranks = number_or(lookup(by_mpirun ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS"), 0);
  launch.local_size = by_mpirun ? number_or(lookup("OMPI_COMM_WORLD_LOCAL_SIZE"), 0)
                                : tasks_on(number_or(lookup("SLURM_NODEID"), 0),
                                           lookup("SLURM_STEP_TASKS_PER_NODE").value_or(""));
  launch.step = lookup("PMIX_NAMESPACE").value_or("");
  if (const auto step = lookup("SLURM_STEP_ID"); step && launch.step.empty())
    launch.step = fmt::format("{}.{}", lookup("SLURM_JOB_ID").value_or(""), *step);
  std::ranges::replace(launch.step, '/', '_');
}

// srun sets PMI_SIZE too. Hydra (MPICH, Intel MPI) may start its helpers with srun, but sets MPI_LOCALNRANKS.
bool is_of_srun(const Launcher& launcher, const Environment& lookup) {
  return std::string_view(launcher.size_variable) == "PMI_SIZE" && lookup("SLURM_STEP_NUM_TASKS") &&
         !lookup("MPI_LOCALNRANKS");
}

// mpirun is the nearest launcher, srun the farthest. Some launchers tell only the copies on the node.
void read_launcher(Launch& launch, const Environment& lookup) {
  const auto take = [&](const Launcher& launcher) {
    const auto copies = lookup(launcher.size_variable);
    if (!copies || launch.copies > 1 || is_of_srun(launcher, lookup)) return;
    launch.launcher = &launcher;
    launch.copies = number_or(copies, 1);
    launch.rank = number_or(lookup(launcher.rank_variable), 0);
  };
  take(open_mpi);
  if (launch.launcher) return;
  std::ranges::for_each(other_launchers, take);
  if (!launch.launcher) {
    launch.copies = number_or(lookup("SLURM_STEP_NUM_TASKS"), 1);
    launch.allocated_tasks = launch.copies > 1 ? 1 : number_or(lookup("SLURM_NTASKS"), 1);
    launch.cpus_per_task = number_or(lookup("SLURM_CPUS_PER_TASK"), 0);
  }
}

}  // namespace

// SLURM_PROCID is set in job scripts too. Only in a job step that runs
// several copies of this program is SLURM_STEP_NUM_TASKS above 1.
Launch detect_launch(const Environment& lookup) {
  Launch launch;
  launch.job = slurm_job(lookup);
  if (const auto end = number_or<int64_t>(lookup("SLURM_JOB_END_TIME"), 0))
    launch.job_end = std::chrono::system_clock::from_time_t(end);
  launch.requeued = number_or(lookup("SLURM_RESTART_COUNT"), 0) > 0;
  launch.het_components = number_or(lookup("SLURM_HET_SIZE"), 1);
  launch.nccl_shares_gpus = lookup("NCCL_MULTI_RANK_GPU_ENABLE") == "1";
  launch.nccl_off_fabric = nccl_off_fabric(lookup);
  launch.settle = time_to_settle(lookup);
  read_place(launch, lookup);
  read_launcher(launch, lookup);
  launch.under_mpi = lookup("OMPI_COMM_WORLD_SIZE") || lookup("PMIX_RANK") || lookup("PMI_RANK");
  if (launch.launcher == &open_mpi) return launch;
  if (const auto rank = lookup("PMIX_RANK"))
    launch.rank = number_or(rank, 0);
  else if (!launch.launcher && launch.copies > 1)
    launch.rank = number_or(lookup("SLURM_PROCID"), 0);
  return launch;
}

// list: one name per line, below a line of several words.
std::string mpi_plugins(const std::string& list) {
  std::istringstream lines(list);
  std::string names;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, more;
    if (words >> name && !(words >> more)) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

void check_launch(const Launch& launch, int mpi_ranks, const std::string& mpi,
                  const std::function<std::string()>& mpi_list) {
  if (mpi_ranks > 1 || launch.copies <= 1) return;
  const std::string what = fmt::format("{} copies were started, but MPI sees 1 rank in each", launch.copies);
  if (const Launcher* launcher = launch.launcher) {
    const std::string_view how = launcher->for_open_mpi;
    throw Error(ExitCode::preflight,
                fmt::format("{}: {} started them ({}={}), and maniple was built with {}", what,
                            launcher->name, launcher->size_variable, launch.copies, mpi),
                "every copy would do the whole job and write the same output",
                fmt::format("{}the mpirun of {} (its module), or srun --mpi=pmix; one copy alone on purpose: "
                            "env -u {} maniple ...",
                            how.empty() ? "" : fmt::format("{}, ", how), mpi, launcher->size_variable));
  }
  const std::string offered = launch.rank == 0 ? mpi_plugins(mpi_list()) : "";
  throw Error(ExitCode::preflight, what,
              "srun did not offer PMIx, so that every copy would do the whole job and write the same output",
              fmt::format("srun --mpi=pmix ... ({}), or mpirun inside the allocation",
                          offered.empty() ? "srun --mpi=list shows what this site offers"
                                          : "this site offers: " + offered));
}

}  // namespace maniple
