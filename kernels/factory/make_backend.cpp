#include <kernels/cpu/cpu_device.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cuda/cuda_backend.hpp>
#include <kernels/factory/make_backend.hpp>
#include <kernels/reference/reference_ops.hpp>
#include <kernels/support/counted.hpp>

namespace maniple {

namespace {

Backend make_reference() {
  auto device = std::make_unique<CpuDevice>("cpu, 1 thread, reference");
  auto ops = std::make_unique<ReferenceOps>(*device);
  return {std::move(device), std::move(ops)};
}

Backend make_cpu(const BackendOptions& options) {
  const CpuPath path = cpu::chosen_path(options.cpu_path);
  auto pool = std::make_unique<ThreadPool>(options.threads, options.cpus);
  auto device = std::make_unique<CpuDevice>(
      fmt::format("cpu, {}, {}", counted(static_cast<uint64_t>(options.threads), "thread"), name_of(path)));
  auto ops = std::make_unique<cpu::CpuOps>(*device, std::move(pool), path);
  return {std::move(device), std::move(ops)};
}

}  // namespace

#if MANIPLE_CUDA
bool has_cuda_backend() { return true; }
int visible_gpus() { return cuda::visible_gpus(); }
std::vector<GpuIdentity> identify_gpus() { return cuda::identify_gpus(); }
void open_gpu_libraries() { cuda::open_libraries(); }
#else
bool has_cuda_backend() { return false; }
int visible_gpus() { return 0; }
std::vector<GpuIdentity> identify_gpus() { return {}; }
void open_gpu_libraries() {}
Backend cuda::make_backend(int) {
  throw Error(ExitCode::preflight, "this build has no CUDA backend",
              "the build found no CUDA toolkit, or left it out",
              "use `backend` cpu, or build with -DMANIPLE_CUDA=ON where nvcc and cuBLAS are");
}
#endif

Backend make_backend(const BackendOptions& options) {
  switch (options.kind) {
    case BackendKind::reference:
      return make_reference();
    case BackendKind::automatic:
      return visible_gpus() > 0 ? cuda::make_backend(options.gpu) : make_cpu(options);
    case BackendKind::cpu:
      return make_cpu(options);
    case BackendKind::cuda:
      return cuda::make_backend(options.gpu);
  }
  fail(ExitCode::internal, "unknown backend kind");
}

}  // namespace maniple
