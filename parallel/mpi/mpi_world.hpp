// All ranks that mpirun or srun started.
#pragma once

#include <parallel/world.hpp>

#include <chrono>
#include <string>

namespace maniple {

// Starts MPI; collective over all ranks, once in a process. MPI ends with the world, which must outlive all
// groups and channels made by it. `settle`: how long to send nothing after MPI_Init, where that may not have
// waited for all ranks. Throws Error (preflight) when MPI does not let several threads call it
// or this build lacks what `transport` asks for, Error (fault) naming rank and call when MPI fails, then or
// later.
std::unique_ptr<World> make_mpi_world(FaultHandler on_fault, GpuTransport transport = GpuTransport::automatic,
                                      std::chrono::milliseconds settle = {});

// The library that this build speaks through, "Open MPI v4.1.4"; known before MPI is started, too.
std::string mpi_library();

}  // namespace maniple
