// Preloaded into the ranks of a job: the one that STOP_AT_END tells ("1 before", "0 behind") stands still at
// the end of MPI, before the ranks wait for each other there, or behind it.
#include <mpi.h>

#include <csignal>
#include <cstdlib>
#include <string>

extern "C" int MPI_Finalize() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* asked = std::getenv("STOP_AT_END");
  const auto stop_if = [&](const char* place) {
    if (asked && asked == std::to_string(rank) + place) ::raise(SIGSTOP);
  };
  stop_if(" before");
  const int code = PMPI_Finalize();
  stop_if(" behind");
  return code;
}
