// MPI's own things in our terms: its lifetime, its errors, its handles.
#pragma once

#include <kernels/support/unique_handle.hpp>

#include <mpi.h>

#include <chrono>
#include <span>

namespace maniple {

// Throws Error (fault) naming this rank and the call when `code` is not MPI_SUCCESS. statuses: of a call for
// several requests, zero or set by it.
void check_mpi(int code, const char* call, std::span<const MPI_Status> statuses = {});

// From MPI_Init_thread to MPI_Finalize. Leaves MPI open when it ends because of an exception: finalising
// would wait for the other ranks. `settle`: how long it waits after MPI_Init_thread.
class MpiSession {
 public:
  explicit MpiSession(std::chrono::milliseconds settle);
  ~MpiSession();
  static MPI_Comm everyone();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

struct MpiCommTraits {
  using Handle = MPI_Comm;
  static Handle none() { return MPI_COMM_NULL; }
  static void release(Handle handle) noexcept { MPI_Comm_free(&handle); }
};
struct MpiGroupTraits {
  using Handle = MPI_Group;
  static Handle none() { return MPI_GROUP_NULL; }
  static void release(Handle handle) noexcept { MPI_Group_free(&handle); }
};
using UniqueComm = UniqueHandle<MpiCommTraits>;
using UniqueGroup = UniqueHandle<MpiGroupTraits>;

// Collective over `comm`. Errors of a communicator are returned, never fatal inside MPI; those made from it
// inherit that.
UniqueComm duplicate(MPI_Comm comm);

}  // namespace maniple
