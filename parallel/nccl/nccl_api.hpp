// All calls of NCCL that maniple uses, in our own types. Code above this interface compiles without NCCL and
// CUDA, and the tests run it over a fake. nccl_api.cpp implements it over the real library.
#pragma once

#include <kernels/tensor/device.hpp>
#include <kernels/tensor/tensor_view.hpp>

#include <array>
#include <memory>
#include <optional>
#include <string>

// The handles of NCCL and CUDA are pointers to these.
struct ncclComm;
struct CUstream_st;

namespace maniple {

using NcclComm = ncclComm*;
using NcclStream = CUstream_st*;
using NcclWindow = void*;
using NcclId = std::array<std::byte, 128>;

// Values of ncclResult_t; all others are failures.
enum class NcclResult : int { success = 0, in_progress = 7 };
constexpr bool failed(NcclResult result) {
  return result != NcclResult::success && result != NcclResult::in_progress;
}

struct Gpu {
  std::string uuid;
  std::string card;             // the same for parts (MIG) of one GPU, another on every other GPU of any node
  NcclStream stream = nullptr;  // of the device
};

// A stream of work beside the device's own, for what happens in two turns. A mark is a place in the work so far; to follow it
// is to do later work after it. Marks that were never set are passed. No call waits. Not for captures.
class NcclLane {
 public:
  virtual ~NcclLane() = default;
  virtual NcclStream stream() = 0;
  virtual void mark(size_t turn) = 0;            // in this stream
  virtual void mark_device(size_t turn) = 0;     // in the device's own
  virtual void follow_device(size_t turn) = 0;   // this stream follows the device's mark
  virtual void device_follows(size_t turn) = 0;  // the device's own stream follows this one's mark
};

// No call waits for another rank or for the device. in_progress: comm_state() gives the result later.
// Reductions are sums. Counts and types are those of the views. A rank passes any view where a call does not
// use its buffer.
class NcclApi {
 public:
  virtual ~NcclApi() = default;
  // Loads the library; without this, the first other call does. Throws Error (preflight) if it is missing.
  virtual void open() {}
  virtual std::optional<Gpu> gpu_of(Device& device) = 0;  // absent: NCCL cannot reach the device's memory
  virtual std::unique_ptr<NcclLane> make_lane(Device& device) = 0;
  virtual int version() = 0;  // 22809: 2.28.9
  // NCCL's text for a result, and the last error of this comm (null: of the process) if there is one.
  virtual std::string describe(NcclResult result, NcclComm comm) = 0;

  virtual NcclResult draw_id(NcclId& id) = 0;
  // most_blocks: of a kernel; 0: NCCL chooses.
  virtual NcclResult comm_init(NcclComm& comm, int size, const NcclId& id, int rank, int most_blocks) = 0;
  virtual NcclResult comm_state(NcclComm comm, NcclResult& state) = 0;
  virtual NcclResult comm_finalize(NcclComm comm) = 0;
  virtual NcclResult comm_destroy(NcclComm comm) = 0;
  virtual NcclResult comm_abort(NcclComm comm) = 0;

  // Windows: memory that ranks of a group read directly. From first_windows on; `window` is set when the call is done.
  virtual NcclResult allocate(std::byte*& memory, size_t bytes) = 0;
  virtual NcclResult release(std::byte* memory) = 0;
  virtual NcclResult open_window(NcclWindow& window, TensorView memory, NcclComm comm) = 0;
  virtual NcclResult close_window(NcclWindow window, NcclComm comm) = 0;

  virtual NcclResult group_start() = 0;
  virtual NcclResult group_end() = 0;
  virtual NcclResult all_reduce(TensorView x, NcclComm comm, NcclStream stream) = 0;
  virtual NcclResult all_gather(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) = 0;
  virtual NcclResult reduce_scatter(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) = 0;
  virtual NcclResult reduce(ConstTensorView in, TensorView out, int root, NcclComm comm,
                            NcclStream stream) = 0;
  virtual NcclResult broadcast(ConstTensorView in, TensorView out, int root, NcclComm comm,
                               NcclStream stream) = 0;
  virtual NcclResult send(ConstTensorView x, int to, NcclComm comm, NcclStream stream) = 0;
  virtual NcclResult receive(TensorView x, int from, NcclComm comm, NcclStream stream) = 0;
};

// The first version whose windows end at an abort.
inline constexpr int first_windows = 22907;

// Only in builds with NCCL.
std::unique_ptr<NcclApi> make_nccl_api();

}  // namespace maniple
