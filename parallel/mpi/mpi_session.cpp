#include <kernels/support/check.hpp>
#include <parallel/mpi/mpi_session.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <thread>

namespace maniple {

void check_mpi(int code, const char* call, std::span<const MPI_Status> statuses) {
  if (code == MPI_SUCCESS) return;
  if (code == MPI_ERR_IN_STATUS) {
    const auto failed = std::ranges::find_if(statuses, [](const MPI_Status& status) {
      return status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING;
    });
    if (failed != statuses.end()) code = failed->MPI_ERROR;
  }
  int rank = -1, length = 0;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Error_string(code, text.data(), &length);
  fail(ExitCode::fault, "rank {}: {} failed: {}", rank, call, text.data());
}

MpiSession::MpiSession(std::chrono::milliseconds settle) {
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    throw Error(ExitCode::preflight, "MPI_Init_thread failed", "no rank can reach another",
                "start with the mpirun or srun that belongs to the MPI this program was built with");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw Error(ExitCode::preflight,
                fmt::format("this MPI grants thread level {} of {}", provided, +MPI_THREAD_MULTIPLE),
                "rank 0 schedules and computes in different threads, and every rank has a health thread",
                "use an MPI built with MPI_THREAD_MULTIPLE (ompi_info | grep -i thread)");
  }
  std::this_thread::sleep_for(settle);
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() == 0) MPI_Finalize();
}

MPI_Comm MpiSession::everyone() { return MPI_COMM_WORLD; }

UniqueComm duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return UniqueComm(copy);
}

}  // namespace maniple
