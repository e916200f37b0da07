#include <kernels/cuda/cublaslt_gemm.hpp>

#include <bit>

namespace maniple::cuda {

namespace {

constexpr int64_t workspace_bytes = int64_t{32} << 20;

cudaDataType_t cuda_type(DType dtype) {
  // fp32, bf16, fp16, int32, uint8 (signed here), fp8
  constexpr cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F,
                                      CUDA_R_32I, CUDA_R_8I,   CUDA_R_8F_E4M3};
  return types[static_cast<size_t>(dtype)];
}

// Of cuBLASLt 12.9. Headers from 12.4 on serve, so that the numbers are here.
namespace block_scaling {
constexpr auto weight_mode = static_cast<cublasLtMatmulDescAttributes_t>(31),
               x_mode = static_cast<cublasLtMatmulDescAttributes_t>(32);
constexpr int32_t of_columns = 4, of_blocks = 5;
#if CUBLAS_VERSION >= 120900
static_assert(weight_mode == CUBLASLT_MATMUL_DESC_A_SCALE_MODE &&
              x_mode == CUBLASLT_MATMUL_DESC_B_SCALE_MODE &&
              of_columns == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F &&
              of_blocks == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
#endif
}  // namespace block_scaling

// The largest power of two that divides the address, up to
// 256, the alignment that the library assumes by default.
uint32_t alignment_of(const std::byte* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

UniqueHandle<LayoutHandle> column_major(DType dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout;
  check(cublaslt().layout_create(&layout, cuda_type(dtype), static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), rows),
        "describing a matrix");
  return UniqueHandle<LayoutHandle>(layout);
}

auto setter_of(cublasLtMatrixLayout_t) { return cublaslt().layout_set; }
auto setter_of(cublasLtMatmulDesc_t) { return cublaslt().matmul_set; }
auto setter_of(cublasLtMatmulPreference_t) { return cublaslt().preference_set; }
template <typename Handle, typename Attribute, typename T>
void set(Handle handle, Attribute attribute, T value) {
  check(setter_of(handle)(handle, attribute, &value, sizeof value), "describing a product");
}

// Rows of x that share an algorithm: up to 1, 2, 3, 4, 6, 8, 12, 16 and so on.
int64_t bucket_of(int64_t m) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(m)));
  return m <= power / 4 * 3 ? power / 4 * 3 : power;
}

using PreferenceHandle = CublasLtHandle<cublasLtMatmulPreference_t, &CublasLt::preference_destroy>;

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt opened{SharedLibrary(
      MANIPLE_CUBLASLT, "the cuda backend multiplies matrices with it",
      fmt::format(
          "load the site's CUDA {0} (module load cuda) or add its library folder to LD_LIBRARY_PATH; "
          "packages: "
          "libcublas-{0}-* of NVIDIA's Debian repository, libcublas {0} of conda-forge, nvidia-cublas {0} of "
          "PyPI; or use `backend` cpu",
          CUBLAS_VER_MAJOR))};
  return opened;
}

CublasLtGemm::CublasLtGemm(Device& device) : workspace_(device, DType::uint8, {workspace_bytes}) {
  cublasLtHandle_t handle;
  check(cublaslt().create(&handle), "starting cuBLASLt");
  handle_.reset(handle);
}

CublasLtGemm::Shape CublasLtGemm::shape_of(ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                                           ConstTensorView out, bool blocks) {
  return {x.shape[0],
          weight.shape[0],
          x.shape[1],
          x.dtype,
          out.dtype,
          !bias.empty(),
          blocks,
          alignment_of(x.data),
          alignment_of(weight.data),
          alignment_of(out.data)};
}

// The library's matrices are column major: it computes
// out^T[n, m] = weight[n, k] * x^T[k, m] and reads the stored weight as its transpose.
CublasLtGemm::Plan CublasLtGemm::planned(const Shape& shape) const {
  const auto& [m, n, k, type, out_type, biased, blocks, x_alignment, weight_alignment, out_alignment] = shape;
  cublasLtMatmulDesc_t operation;
  const bool integers = out_type == DType::int32;
  check(cublaslt().matmul_create(&operation, integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                 integers ? CUDA_R_32I : CUDA_R_32F),
        "describing a product");
  Plan plan{UniqueHandle<MatmulHandle>(operation),
            column_major(type, k, n),
            column_major(type, k, m),
            column_major(out_type, n, m),
            {}};
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (biased) set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  if (blocks) {
    set(operation, block_scaling::weight_mode, block_scaling::of_blocks);
    set(operation, block_scaling::x_mode, block_scaling::of_columns);
  }

  cublasLtMatmulPreference_t created;
  check(cublaslt().preference_create(&created), "describing what an algorithm may use");
  const UniqueHandle<PreferenceHandle> preference(created);
  set(created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  // Parts of a sum are added in fp32, whatever the result's type.
  set(created, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(created, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, weight_alignment);
  set(created, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x_alignment);
  set(created, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_alignment);
  set(created, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_alignment);

  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  const cublasStatus_t result =
      cublaslt().algorithms(handle_.get(), operation, plan.weight.get(), plan.x.get(), plan.out.get(),
                            plan.out.get(), created, 1, &best, &found);
  if (result != CUBLAS_STATUS_SUCCESS || found == 0)
    fail(ExitCode::fault, "cuBLASLt has no algorithm for {} x {} x {}, {} to {}: {}", m, n, k, name_of(type),
         name_of(out_type), cublaslt().status_string(result));
  plan.algorithm = best.algo;
  return plan;
}

CublasLtGemm::Plan& CublasLtGemm::plan_for(const Shape& shape) {
  const auto place = plans_.find(shape);
  return place != plans_.end() ? place->second : plans_.emplace(shape, planned(shape)).first->second;
}

void CublasLtGemm::prepare(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, TensorView out,
                           bool blocks) {
  Shape shape = shape_of(x, weight, bias, out, blocks);
  const int64_t most = shape.m;
  for (shape.m = 1; shape.m <= bucket_of(most); shape.m = bucket_of(shape.m + 1)) plan_for(shape);
}

void CublasLtGemm::multiply(device::Stream stream, ConstTensorView x, ConstTensorView weight,
                            ConstTensorView bias, TensorView out, BlockScales scales) {
  const auto run = [&](Plan& plan) {
    for (cublasLtMatrixLayout_t layout : {plan.x.get(), plan.out.get()})
      set(layout, CUBLASLT_MATRIX_LAYOUT_COLS, static_cast<uint64_t>(x.shape[0]));
    if (!bias.empty()) set(plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data);
    if (scales.x) {
      set(plan.operation.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.weight);
      set(plan.operation.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.x);
    }
    const float one = 1, zero = 0;
    const int32_t integer_one = 1;
    const void* const factor = out.dtype == DType::int32 ? static_cast<const void*>(&integer_one) : &one;
    return cublaslt().matmul(handle_.get(), plan.operation.get(), factor, weight.data, plan.weight.get(),
                             x.data, plan.x.get(), &zero, out.data, plan.out.get(), out.data, plan.out.get(),
                             &plan.algorithm, workspace_.view().data, static_cast<size_t>(workspace_bytes),
                             stream);
  };
  Shape shape = shape_of(x, weight, bias, out, scales.x != nullptr);
  const int64_t m = shape.m;
  shape.m = bucket_of(m);
  cublasStatus_t result = run(plan_for(shape));
  // An algorithm may refuse other numbers of rows than the one it was chosen for.
  if (m != shape.m && (result == CUBLAS_STATUS_INVALID_VALUE || result == CUBLAS_STATUS_NOT_SUPPORTED)) {
    shape.m = m;
    result = run(plan_for(shape));
  }
  check(result, "multiplying matrices");
}

}  // namespace maniple::cuda
