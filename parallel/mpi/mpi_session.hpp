// MPI's lifetime, errors and handles in terms of C++.
#pragma once

#include <kernels/support/unique_handle.hpp>

#include <mpi.h>

#include <chrono>
#include <span>

namespace maniple {

constexpr int tag = 0;  // of all messages: each purpose has a communicator of its own

// Throws Error (fault), naming this rank and the call, when `code` is not MPI_SUCCESS. statuses: those of a
// call for several requests; entries that the call did not set must be zero.
void check_mpi(int code, const char* call, std::span<const MPI_Status> statuses = {});

// From MPI_Init_thread to MPI_Finalize. When an exception ends it, MPI stays open: finalising would wait for
// the other ranks. `settle`: how long to sleep after MPI_Init_thread.
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

// Collective over `comm`. Calls on the copy return errors and do not end the process; communicators made from
// the copy inherit that.
UniqueComm duplicate(MPI_Comm comm);

}  // namespace maniple
