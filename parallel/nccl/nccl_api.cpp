#include <kernels/cuda/cuda_device.hpp>
#include <kernels/cuda/device/cuda_check.hpp>
#include <kernels/support/shared_library.hpp>
#include <parallel/nccl/nccl_api.hpp>

#include <nccl.h>

#include <cstring>
#include <fstream>
#include <string>

namespace maniple {

namespace {

// Another one on every node, also where containers have the same host name.
std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp16:
      return ncclFloat16;
    case DType::int32:
      return ncclInt32;
    case DType::uint8:
    case DType::fp8:
    case DType::e8m0:
      return ncclUint8;
  }
  fail(ExitCode::internal, "unknown element type");
}

size_t count_of(ConstTensorView x) { return static_cast<size_t>(x.shape.elements()); }

NcclResult result(ncclResult_t code) { return static_cast<NcclResult>(code); }

// Opened at run time and not linked: the program must start on machines without NCCL.
struct Nccl {
  SharedLibrary library;

  decltype(&ncclGetVersion) get_version = library.function("ncclGetVersion");
  decltype(&ncclGetLastError) last_error = library.function("ncclGetLastError");
  decltype(&ncclGetErrorString) error_string = library.function("ncclGetErrorString");
  decltype(&ncclGetUniqueId) unique_id = library.function("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init = library.function("ncclCommInitRankConfig");
  decltype(&ncclCommGetAsyncError) async_error = library.function("ncclCommGetAsyncError");
  decltype(&ncclCommFinalize) finalize = library.function("ncclCommFinalize");
  decltype(&ncclCommDestroy) destroy = library.function("ncclCommDestroy");
  decltype(&ncclCommAbort) abort = library.function("ncclCommAbort");
  decltype(&ncclGroupStart) group_start = library.function("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = library.function("ncclGroupEnd");
  decltype(&ncclAllReduce) all_reduce = library.function("ncclAllReduce");
  decltype(&ncclAllGather) all_gather = library.function("ncclAllGather");
  decltype(&ncclReduceScatter) reduce_scatter = library.function("ncclReduceScatter");
  decltype(&ncclReduce) reduce = library.function("ncclReduce");
  decltype(&ncclBroadcast) broadcast = library.function("ncclBroadcast");
  decltype(&ncclSend) send = library.function("ncclSend");
  decltype(&ncclRecv) receive = library.function("ncclRecv");
};

// Of NCCL 2.27; older headers do not have them.
struct NcclWindows {
  ncclResult_t (*allocate)(void** memory, size_t bytes) = library().function("ncclMemAlloc");
  ncclResult_t (*release)(void* memory) = library().function("ncclMemFree");
  ncclResult_t (*open)(ncclComm_t comm, void* memory, size_t bytes, void** window,
                       int flags) = library().function("ncclCommWindowRegister");
  ncclResult_t (*close)(ncclComm_t comm, void* window) = library().function("ncclCommWindowDeregister");

  static constexpr int symmetric = 1;
#ifdef NCCL_WIN_COLL_SYMMETRIC
  static_assert(symmetric == NCCL_WIN_COLL_SYMMETRIC);
#endif
  static const SharedLibrary& library();
};

// Opens the library on first use.
const Nccl& nccl() {
  static const Nccl opened{SharedLibrary(
      MANIPLE_NCCL_LIBRARY, "ranks on GPUs of their own talk through it",
      fmt::format(
          "load the site's NCCL {}.{} or newer (module load nccl, or cuda) or add its library folder to "
          "LD_LIBRARY_PATH; packages: libnccl2 of NVIDIA's Debian repository, nccl of conda-forge, "
          "nvidia-nccl-cu{} of PyPI; `transport` host goes without it",
          NCCL_MAJOR, NCCL_MINOR, CUDART_VERSION / 1000))};
  return opened;
}

const SharedLibrary& NcclWindows::library() { return nccl().library; }
const NcclWindows& windows() {
  static const NcclWindows found;
  return found;
}

// Its stream goes before the device's own work: what it moves is small, and another GPU waits for it.
class CudaLane final : public NcclLane {
 public:
  explicit CudaLane(cudaStream_t device) : device_(device) {
    cudaStream_t made;
    cuda::check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, -1), "creating a stream");
    stream_.reset(made);
    for (cuda::UniqueEvent* mark : {&marks_[0], &marks_[1], &device_marks_[0], &device_marks_[1]})
      *mark = cuda::make_event();
  }
  NcclStream stream() override { return stream_.get(); }
  void mark(size_t turn) override { record(marks_[turn], stream_.get()); }
  void mark_device(size_t turn) override { record(device_marks_[turn], device_); }
  void follow_device(size_t turn) override { follow(stream_.get(), device_marks_[turn]); }
  void device_follows(size_t turn) override { follow(device_, marks_[turn]); }

 private:
  static void record(const cuda::UniqueEvent& mark, cudaStream_t stream) {
    cuda::check(cudaEventRecord(mark.get(), stream), "recording an event");
  }
  static void follow(cudaStream_t stream, const cuda::UniqueEvent& mark) {
    cuda::check(cudaStreamWaitEvent(stream, mark.get(), 0), "making a stream wait");
  }

  cudaStream_t device_;
  UniqueHandle<cuda::StreamHandle> stream_;
  std::array<cuda::UniqueEvent, 2> marks_, device_marks_;
};

class OpenedNccl final : public NcclApi {
 public:
  void open() override { nccl(); }

  std::optional<Gpu> gpu_of(Device& device) override {
    const auto* gpu = dynamic_cast<cuda::CudaDevice*>(&device);
    if (!gpu) return std::nullopt;
    return Gpu{gpu->uuid(), fmt::format("{} {}", boot_id(), gpu->bus()), gpu->stream()};
  }

  std::unique_ptr<NcclLane> make_lane(Device& device) override {
    return std::make_unique<CudaLane>(dynamic_cast<cuda::CudaDevice&>(device).stream());
  }

  int version() override {
    int version = 0;
    nccl().get_version(&version);
    return version;
  }

  std::string describe(NcclResult code, NcclComm comm) override {
    const std::string last = nccl().last_error(comm);
    const std::string words = nccl().error_string(static_cast<ncclResult_t>(code));
    return last.empty() ? words : fmt::format("{} ({})", words, last);
  }

  NcclResult draw_id(NcclId& id) override {
    ncclUniqueId drawn;
    const ncclResult_t code = nccl().unique_id(&drawn);
    std::memcpy(id.data(), &drawn, sizeof drawn);
    return result(code);
  }

  NcclResult comm_init(NcclComm& comm, int size, const NcclId& id, int rank, int most_blocks) override {
    ncclUniqueId drawn;
    static_assert(sizeof drawn == sizeof id);
    std::memcpy(&drawn, id.data(), sizeof drawn);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if NCCL_VERSION_CODE >= 21700
    if (most_blocks > 0) config.minCTAs = 1, config.maxCTAs = most_blocks;
#endif
    return result(nccl().init(&comm, size, drawn, rank, &config));
  }

  NcclResult comm_state(NcclComm comm, NcclResult& state) override {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t code = nccl().async_error(comm, &found);
    state = result(found);
    return result(code);
  }

  NcclResult comm_finalize(NcclComm comm) override { return result(nccl().finalize(comm)); }
  NcclResult comm_destroy(NcclComm comm) override { return result(nccl().destroy(comm)); }
  NcclResult comm_abort(NcclComm comm) override { return result(nccl().abort(comm)); }

  NcclResult allocate(std::byte*& memory, size_t bytes) override {
    void* made = nullptr;
    const ncclResult_t code = windows().allocate(&made, bytes);
    memory = static_cast<std::byte*>(made);
    return result(code);
  }
  NcclResult release(std::byte* memory) override { return result(windows().release(memory)); }
  NcclResult open_window(NcclWindow& window, TensorView memory, NcclComm comm) override {
    return result(windows().open(comm, memory.data, memory.bytes(), &window, NcclWindows::symmetric));
  }
  NcclResult close_window(NcclWindow window, NcclComm comm) override {
    return result(windows().close(comm, window));
  }

  NcclResult group_start() override { return result(nccl().group_start()); }
  NcclResult group_end() override { return result(nccl().group_end()); }

  NcclResult all_reduce(TensorView x, NcclComm comm, NcclStream stream) override {
    return result(nccl().all_reduce(x.data, x.data, count_of(x), type_of(x.dtype), ncclSum, comm, stream));
  }
  NcclResult all_gather(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) override {
    return result(nccl().all_gather(in.data, out.data, count_of(in), type_of(in.dtype), comm, stream));
  }
  NcclResult reduce_scatter(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) override {
    return result(
        nccl().reduce_scatter(in.data, out.data, count_of(out), type_of(in.dtype), ncclSum, comm, stream));
  }
  NcclResult reduce(ConstTensorView in, TensorView out, int root, NcclComm comm, NcclStream stream) override {
    return result(
        nccl().reduce(in.data, out.data, count_of(in), type_of(in.dtype), ncclSum, root, comm, stream));
  }
  NcclResult broadcast(ConstTensorView in, TensorView out, int root, NcclComm comm,
                       NcclStream stream) override {
    return result(nccl().broadcast(in.data, out.data, count_of(in), type_of(in.dtype), root, comm, stream));
  }
  NcclResult send(ConstTensorView x, int to, NcclComm comm, NcclStream stream) override {
    return result(nccl().send(x.data, count_of(x), type_of(x.dtype), to, comm, stream));
  }
  NcclResult receive(TensorView x, int from, NcclComm comm, NcclStream stream) override {
    return result(nccl().receive(x.data, count_of(x), type_of(x.dtype), from, comm, stream));
  }
};

}  // namespace

std::unique_ptr<NcclApi> make_nccl_api() { return std::make_unique<OpenedNccl>(); }

}  // namespace maniple
