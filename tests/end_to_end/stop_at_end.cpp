// Preloaded into the ranks of a job. STOP_AT_END ("1 before", "0 behind") stops a rank
// at the end of MPI, before or after the ranks wait for each other in MPI_Finalize.
// HURT_AT_START stops ("1 STOP init") or kills ("1 KILL init") a rank before MPI_Init.
#include <mpi.h>

#include <csignal>
#include <cstdlib>
#include <string>

extern "C" int MPI_Init_thread(int* count, char*** arguments, int required, int* provided) {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  const std::string rank = value("OMPI_COMM_WORLD_RANK"), asked = value("HURT_AT_START");
  if (asked == rank + " STOP init") ::raise(SIGSTOP);
  if (asked == rank + " KILL init") ::raise(SIGKILL);
  return PMPI_Init_thread(count, arguments, required, provided);
}

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
