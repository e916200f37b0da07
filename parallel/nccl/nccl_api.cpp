#include <kernels/cuda/cuda_device.hpp>
#include <kernels/support/check.hpp>
#include <parallel/nccl/nccl_api.hpp>

#include <nccl.h>

#include <cstring>

namespace maniple {

namespace {

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
      return ncclUint8;
  }
  fail(ExitCode::internal, "unknown element type");
}

size_t count_of(ConstTensorView x) { return static_cast<size_t>(x.shape.elements()); }

NcclResult result(ncclResult_t code) { return static_cast<NcclResult>(code); }

class LinkedNccl final : public NcclApi {
 public:
  std::optional<Gpu> gpu_of(Device& device) override {
    const auto* gpu = dynamic_cast<cuda::CudaDevice*>(&device);
    return gpu ? std::optional(Gpu{gpu->uuid(), gpu->stream()}) : std::nullopt;
  }

  int version() override {
    int version = 0;
    ncclGetVersion(&version);
    return version;
  }

  std::string describe(NcclResult code, NcclComm comm) override {
    const std::string last = ncclGetLastError(comm);
    const std::string words = ncclGetErrorString(static_cast<ncclResult_t>(code));
    return last.empty() ? words : fmt::format("{} ({})", words, last);
  }

  NcclResult draw_id(NcclId& id) override {
    ncclUniqueId drawn;
    const ncclResult_t code = ncclGetUniqueId(&drawn);
    std::memcpy(id.data(), &drawn, sizeof drawn);
    return result(code);
  }

  NcclResult comm_init(NcclComm& comm, int size, const NcclId& id, int rank) override {
    ncclUniqueId drawn;
    static_assert(sizeof drawn == sizeof id);
    std::memcpy(&drawn, id.data(), sizeof drawn);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return result(ncclCommInitRankConfig(&comm, size, drawn, rank, &config));
  }

  NcclResult comm_state(NcclComm comm, NcclResult& state) override {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t code = ncclCommGetAsyncError(comm, &found);
    state = result(found);
    return result(code);
  }

  NcclResult comm_finalize(NcclComm comm) override { return result(ncclCommFinalize(comm)); }
  NcclResult comm_destroy(NcclComm comm) override { return result(ncclCommDestroy(comm)); }
  NcclResult comm_abort(NcclComm comm) override { return result(ncclCommAbort(comm)); }

  NcclResult group_start() override { return result(ncclGroupStart()); }
  NcclResult group_end() override { return result(ncclGroupEnd()); }

  NcclResult all_reduce(TensorView x, NcclComm comm, NcclStream stream) override {
    return result(ncclAllReduce(x.data, x.data, count_of(x), type_of(x.dtype), ncclSum, comm, stream));
  }
  NcclResult all_gather(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) override {
    return result(ncclAllGather(in.data, out.data, count_of(in), type_of(in.dtype), comm, stream));
  }
  NcclResult reduce_scatter(ConstTensorView in, TensorView out, NcclComm comm, NcclStream stream) override {
    return result(
        ncclReduceScatter(in.data, out.data, count_of(out), type_of(in.dtype), ncclSum, comm, stream));
  }
  NcclResult reduce(ConstTensorView in, TensorView out, int root, NcclComm comm, NcclStream stream) override {
    return result(
        ncclReduce(in.data, out.data, count_of(in), type_of(in.dtype), ncclSum, root, comm, stream));
  }
  NcclResult broadcast(ConstTensorView in, TensorView out, int root, NcclComm comm,
                       NcclStream stream) override {
    return result(ncclBroadcast(in.data, out.data, count_of(in), type_of(in.dtype), root, comm, stream));
  }
  NcclResult send(ConstTensorView x, int to, NcclComm comm, NcclStream stream) override {
    return result(ncclSend(x.data, count_of(x), type_of(x.dtype), to, comm, stream));
  }
  NcclResult receive(TensorView x, int from, NcclComm comm, NcclStream stream) override {
    return result(ncclRecv(x.data, count_of(x), type_of(x.dtype), from, comm, stream));
  }
};

}  // namespace

std::unique_ptr<NcclApi> make_nccl_api() { return std::make_unique<LinkedNccl>(); }

}  // namespace maniple
