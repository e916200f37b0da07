// A stand-in for cuBLASLt, after its documentation: matrices are column major with a leading dimension,
// D[m, n] = alpha op(A) op(B) + beta C, and the bias of D's type has one element per row of D. An algorithm
// serves only the layouts and alignments that it was requested for, with any number of columns, except 5 more
// than a multiple of 8: it refuses those, which the documentation does not rule out.
// Codes: int8 to int32, e4m3 to fp32, the latter also with scales of 128 columns and of 128 x 128 blocks.
#include <kernels/reference/rows.hpp>
#include <rehearsal/stand_in_cuda.hpp>
#include <support/code_products.hpp>

#include <cublasLt.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace maniple::rehearsal {

namespace {

struct Layout {
  cudaDataType type;
  int64_t rows, columns, leading;
  bool operator==(const Layout&) const = default;
};
struct Product {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t a_mode = 0, b_mode = 0;  // of scales
  const float *a_scales = nullptr, *b_scales = nullptr;
  bool integers = false;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t a = 256, b = 256, c = 256, d = 256;  // alignments
};
struct Algorithm {
  uint64_t shape;  // a hash of all layouts but their columns
  int64_t columns;
  uint64_t workspace;
  uint32_t a, b, c, d;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <typename T, typename Handle>
T& behind(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}
template <typename T, typename Handle>
cublasStatus_t create(Handle* handle, T value) {
  *handle = reinterpret_cast<Handle>(new T(value));
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Handle>
cublasStatus_t destroy(Handle handle) {
  delete reinterpret_cast<T*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T>
cublasStatus_t assign(T& target, const void* value, size_t bytes) {
  if (bytes != sizeof target) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&target, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t hash_of(const Product& product, std::initializer_list<const Layout*> layouts) {
  std::string text = std::to_string(product.a) + ' ' + std::to_string(product.b) + ' ' +
                     std::to_string(product.epilogue) + ' ' + std::to_string(product.a_mode) + ' ' +
                     std::to_string(product.b_mode);
  for (const Layout* l : layouts)
    for (const int64_t number : {static_cast<int64_t>(l->type), l->rows, l->leading})
      text += ' ' + std::to_string(number);
  return std::hash<std::string>()(text);
}

DType dtype_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16BF:
      return DType::bf16;
    case CUDA_R_16F:
      return DType::fp16;
    case CUDA_R_8F_E4M3:
      return DType::fp8;
    case CUDA_R_8I:
      return DType::uint8;
    case CUDA_R_32I:
      return DType::int32;
    default:
      return DType::fp32;
  }
}

// The columns of a matrix, which are contiguous in memory.
std::vector<reference::Floats> columns_of(const void* data, const Layout& layout) {
  const int64_t extent = layout.leading * layout.columns;
  const ConstTensorView all{static_cast<const std::byte*>(data), dtype_of(layout.type), {extent}};
  std::vector<reference::Floats> columns;
  for (int64_t i = 0; i < layout.columns; ++i)
    columns.push_back(reference::read(all, i * layout.leading, layout.rows));
  return columns;
}
std::vector<reference::Floats> transposed(const std::vector<reference::Floats>& columns) {
  std::vector<reference::Floats> rows(columns.empty() ? 0 : columns[0].size());
  for (const reference::Floats& column : columns)
    for (size_t i = 0; i < column.size(); ++i) rows[i].push_back(column[i]);
  return rows;
}

}  // namespace

}  // namespace maniple::rehearsal

using namespace maniple;
using namespace maniple::rehearsal;

const char* cublasLtGetStatusString(cublasStatus_t) { return "refused by the stand-in for cuBLASLt"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return create(handle, 0); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<int>(handle); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  return create(layout, Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  if (attribute != CUBLASLT_MATRIX_LAYOUT_COLS) return CUBLAS_STATUS_NOT_SUPPORTED;
  return assign(behind<Layout>(layout).columns, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout) {
  return destroy<Layout>(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const bool integers = compute == CUBLAS_COMPUTE_32I && scale == CUDA_R_32I;
  if (!integers && (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  Product made;
  made.integers = integers;
  return create(product, made);
}
cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t product) {
  return destroy<Product>(product);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  auto& product = behind<Product>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(product.a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(product.b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(product.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(product.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return assign(product.a_scales, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return assign(product.b_scales, value, bytes);
    default:
      if (attribute == 31) return assign(product.a_mode, value, bytes);  // of 12.9
      if (attribute == 32) return assign(product.b_mode, value, bytes);
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  auto& preference = behind<Preference>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(preference.a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(preference.b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(preference.c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(preference.d, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return bytes == sizeof(uint32_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preferred, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Product& described = behind<Product>(product);
  const Layout &left = behind<Layout>(a), &out = behind<Layout>(d);
  const bool codes = left.type == CUDA_R_8F_E4M3 || left.type == CUDA_R_8I;
  const bool scales = described.a_mode != 0 || described.b_mode != 0;
  if (codes && (left.type != behind<Layout>(b).type || left.rows % 16 != 0 || left.columns % 16 != 0 ||
                described.a != CUBLAS_OP_T || described.epilogue != CUBLASLT_EPILOGUE_DEFAULT ||
                out.type != (described.integers ? CUDA_R_32I : CUDA_R_32F)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (described.integers != (left.type == CUDA_R_8I) ||
      (scales && (left.type != CUDA_R_8F_E4M3 || described.a_mode != 5 || described.b_mode != 4)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  ++algorithms_chosen;
  const auto& preference = behind<Preference>(preferred);
  const Algorithm algorithm{hash_of(behind<Product>(product), {&behind<Layout>(a), &behind<Layout>(b),
                                                               &behind<Layout>(c), &behind<Layout>(d)}),
                            behind<Layout>(d).columns,
                            preference.workspace,
                            preference.a,
                            preference.b,
                            preference.c,
                            preference.d};
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = preference.workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product_handle, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* chosen, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Product product = behind<Product>(product_handle);
  const Layout left = behind<Layout>(a_layout), right = behind<Layout>(b_layout),
               out = behind<Layout>(d_layout);
  Algorithm algorithm;
  std::memcpy(&algorithm, chosen, sizeof algorithm);
  const auto aligned = [](const void* memory, uint32_t bytes) {
    return reinterpret_cast<uintptr_t>(memory) % bytes == 0;
  };
  const bool serves = out.columns == algorithm.columns || out.columns % 8 != 5;
  const bool fits =
      serves && algorithm.shape == hash_of(product, {&left, &right, &behind<Layout>(c_layout), &out}) &&
      algorithm.workspace <= workspace_bytes && workspace && aligned(workspace, 16) &&
      aligned(a, algorithm.a) && aligned(b, algorithm.b) && aligned(c, algorithm.c) &&
      aligned(d, algorithm.d) && (product.epilogue == CUBLASLT_EPILOGUE_BIAS) <= (product.bias != nullptr) &&
      (product.integers ? *static_cast<const int32_t*>(alpha) == 1
                        : *static_cast<const float*>(alpha) == 1) &&
      *static_cast<const float*>(beta) == 0;
  const int64_t rows = product.a == CUBLAS_OP_T ? left.columns : left.rows;
  const int64_t inner = product.a == CUBLAS_OP_T ? left.rows : left.columns;
  const bool meet = product.b == CUBLAS_OP_N && right.rows == inner && out.rows == rows &&
                    out.columns == right.columns && left.type == right.type;
  if (!fits || !meet) return CUBLAS_STATUS_INVALID_VALUE;

  // Code for twice as many rows as before is loaded at first use.
  static uint64_t loaded = 0;
  for (; !records(stream) && loaded < static_cast<uint64_t>(out.columns); loaded = 2 * loaded + 1)
    if (!allocate(size_t{1} << 20)) return CUBLAS_STATUS_ALLOC_FAILED;

  if (left.type == CUDA_R_8F_E4M3 || left.type == CUDA_R_8I) {
    const bool packed = left.leading == left.rows && right.leading == right.rows && out.leading == out.rows;
    if (!packed || (product.a_mode != 0 && (!product.a_scales || !product.b_scales)))
      return CUBLAS_STATUS_INVALID_VALUE;
    const auto view = [](const void* data, const Layout& layout) {
      return TensorView{const_cast<std::byte*>(static_cast<const std::byte*>(data)),
                        dtype_of(layout.type),
                        {layout.columns, layout.rows}};
    };
    const TensorView weight = view(a, left), x = view(b, right), sums = view(d, out);
    const auto multiply = [=](emulation::Order&) {
      testing::multiply_codes(x, weight, product.a_mode ? product.b_scales : nullptr,
                              product.a_mode ? product.a_scales : nullptr, sums);
    };
    enqueue(stream, {multiply});
    return CUBLAS_STATUS_SUCCESS;
  }
  const auto multiply = [=](emulation::Order&) {
    const auto stored = columns_of(a, left);
    const auto weights = product.a == CUBLAS_OP_T ? stored : transposed(stored);
    const TensorView target{static_cast<std::byte*>(d), dtype_of(out.type), {out.leading * out.columns}};
    reference::Floats bias(static_cast<size_t>(rows), 0.0f);
    if (product.epilogue == CUBLASLT_EPILOGUE_BIAS)
      bias =
          reference::read({static_cast<const std::byte*>(product.bias), dtype_of(out.type), {rows}}, 0, rows);
    const auto inputs = columns_of(b, right);
    for (size_t column = 0; column < inputs.size(); ++column) {
      reference::Floats sums;
      for (size_t row = 0; row < weights.size(); ++row)
        sums.push_back(reference::dot(weights[row].data(), inputs[column].data(), inner) + bias[row]);
      reference::write(target, static_cast<int64_t>(column) * out.leading, sums);
    }
  };
  enqueue(stream, {multiply});
  return CUBLAS_STATUS_SUCCESS;
}
