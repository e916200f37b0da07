// All ranks that mpirun or srun started.
#pragma once

#include <parallel/world.hpp>

#include <chrono>
#include <string>

namespace maniple {

// Starts MPI. Collective over all ranks, once per process. MPI ends with the world, which must outlive all
// groups and channels made by it. `settle`: how long to send nothing after MPI_Init, for an MPI_Init that may
// return before all ranks have called it. Throws Error (preflight) when MPI lacks MPI_THREAD_MULTIPLE or this
// build lacks `transport`. Throws Error (fault), naming rank and call, when MPI fails, then or later.
std::unique_ptr<World> make_mpi_world(FaultHandler on_fault, GpuTransport transport = GpuTransport::automatic,
                                      NcclSwitches nccl = {}, std::chrono::milliseconds settle = {});

// The MPI library that this build uses, "Open MPI v4.1.4". May be called before MPI is started.
std::string mpi_library();

}  // namespace maniple
