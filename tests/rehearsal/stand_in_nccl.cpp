// NCCL's C interface over the fake of tests/support, for ranks that are processes of one machine. Its folder
// is below $STAND_IN_FOLDER (/dev/shm). STAND_IN_LAST_BROADCAST=N kills a rank in its N-th broadcast.
// STAND_IN_NCCL=22907 is its version. STAND_IN_CALLS=FILE: a line for each operation outside graphs.
#include <rehearsal/stand_in_cuda.hpp>
#include <support/fake_nccl.hpp>

#include <nccl.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace {

using namespace maniple;

FakeNccl& fake() {
  static const char* const folder = std::getenv("STAND_IN_FOLDER");
  static FakeNccl fake(
      [](NcclStream stream, const FakeNccl::Operation& operation) {
        static const char* const calls = std::getenv("STAND_IN_CALLS");
        if (calls && !rehearsal::records(stream)) std::ofstream(calls, std::ios::app) << "a call\n";
        rehearsal::enqueue(stream, {[run = operation.run](auto&) { run(); }, operation.can_run});
      },
      folder ? folder : "/dev/shm");
  return fake;
}

ncclResult_t code(NcclResult result) { return static_cast<ncclResult_t>(result); }

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclBfloat16:
      return DType::bf16;
    case ncclFloat16:
      return DType::fp16;
    case ncclInt32:
      return DType::int32;
    case ncclUint8:
      return DType::uint8;
    default:
      return DType::fp32;
  }
}

ConstTensorView in_view(const void* data, size_t count, ncclDataType_t type) {
  return {static_cast<const std::byte*>(data), dtype_of(type), {static_cast<int64_t>(count)}};
}
TensorView out_view(void* data, size_t count, ncclDataType_t type) {
  return {static_cast<std::byte*>(data), dtype_of(type), {static_cast<int64_t>(count)}};
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  const char* const asked = std::getenv("STAND_IN_NCCL");
  *version = asked ? std::atoi(asked) : NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "refused by the stand-in for NCCL"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  NcclId drawn;
  const NcclResult result = fake().draw_id(drawn);
  std::memcpy(id, drawn.data(), drawn.size());
  return code(result);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  NcclId drawn;
  std::memcpy(drawn.data(), &id, drawn.size());
  // NCCL before 2.17 has no config->maxCTAs, and the fake takes any number of blocks.
  return code(fake().comm_init(*comm, size, drawn, rank, 0));
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  NcclResult found = NcclResult::success;
  const NcclResult result = fake().comm_state(comm, found);
  *state = code(found);
  return code(result);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return code(fake().comm_finalize(comm)); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return code(fake().comm_destroy(comm)); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return code(fake().comm_abort(comm)); }

// Memory of windows is that of the stand-in GPU. The program finds these by name, whatever the header declares.
#if NCCL_VERSION_CODE < 21900
extern "C" ncclResult_t ncclMemAlloc(void**, size_t);
extern "C" ncclResult_t ncclMemFree(void*);
#endif
ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  *memory = rehearsal::allocate(bytes);
  return *memory ? ncclSuccess : ncclSystemError;
}
ncclResult_t ncclMemFree(void* memory) {
  return rehearsal::release(static_cast<std::byte*>(memory)) ? ncclSuccess : ncclSystemError;
}
extern "C" ncclResult_t stand_in_open_window(ncclComm_t comm, void* memory, size_t bytes, void** window,
                                             int flags) __asm__("ncclCommWindowRegister");
ncclResult_t stand_in_open_window(ncclComm_t comm, void* memory, size_t bytes, void** window, int flags) {
  return flags == 1 ? code(fake().open_window(*window, out_view(memory, bytes, ncclUint8), comm))
                    : ncclInvalidArgument;
}
extern "C" ncclResult_t stand_in_close_window(ncclComm_t comm,
                                              void* window) __asm__("ncclCommWindowDeregister");
ncclResult_t stand_in_close_window(ncclComm_t comm, void* window) {
  return code(fake().close_window(window, comm));
}

ncclResult_t ncclGroupStart() { return code(fake().group_start()); }
ncclResult_t ncclGroupEnd() { return code(fake().group_end()); }

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return in == out ? code(fake().all_reduce(out_view(out, count, type), comm, stream)) : ncclInvalidArgument;
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t all = count * fake().ranks_of(comm);
  return code(fake().reduce_scatter(in_view(in, all, type), out_view(out, count, type), comm, stream));
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return code(fake().reduce(in_view(in, count, type), out_view(out, count, type), root, comm, stream));
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return code(fake().all_gather(in_view(in, count, type), out_view(out, count, type), comm, stream));
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  static int broadcasts = 0;
  const char* const last = std::getenv("STAND_IN_LAST_BROADCAST");
  if (last && ++broadcasts == std::atoi(last)) std::raise(SIGKILL);
  return code(fake().broadcast(in_view(in, count, type), out_view(out, count, type), root, comm, stream));
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
  return code(fake().send(in_view(in, count, type), to, comm, stream));
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream) {
  return code(fake().receive(out_view(out, count, type), from, comm, stream));
}
