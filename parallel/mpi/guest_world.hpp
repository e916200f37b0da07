// A world on the communicator of a program that owns MPI.
#pragma once

#include <parallel/mpi/mpi_handle.hpp>
#include <parallel/world.hpp>

#include <memory>

namespace maniple {

// Collective over `comm`; all messages travel on duplicates of it. The world must end before MPI does, on all ranks together. Throws Error
// (preflight) where MPI is not initialised with MPI_THREAD_MULTIPLE; (fault) when MPI fails, then or later. Its abort() is MPI_Abort(comm).
std::unique_ptr<World> make_guest_world(MPI_Comm comm);

}  // namespace maniple
