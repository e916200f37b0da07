// Preloaded into the ranks of a job: the one that STOP_AT_END tells ("1 before", "0 behind") stands still at
// the end of MPI, before the ranks wait for each other there, or behind it. The one that HURT_AT_START tells
// stands still ("1 STOP init") or dies ("1 KILL init") before MPI begins.
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
