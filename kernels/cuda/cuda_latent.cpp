#include <kernels/contracts.hpp>
#include <kernels/cuda/cuda_ops.hpp>
#include <kernels/paged_rows.hpp>

namespace maniple::cuda {

void CudaOps::matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, TensorView out) {
  contract::matmul_heads(x, weights, out);
  const auto heads = static_cast<int64_t>(weights.size());
  if (x.shape[0] > 0)
    multiply_heads(stream_, {.x_dtype = x.dtype,
                             .out_dtype = out.dtype,
                             .x = x.data,
                             .weights = addresses_of(weights),
                             .out = out.data,
                             .tokens = narrow(x.shape[0]),
                             .heads = narrow(heads),
                             .x_lanes = narrow(x.shape[1] / heads),
                             .out_lanes = narrow(out.shape[1] / heads),
                             .rows = narrow(weights[0]->rows),
                             .columns = narrow(weights[0]->columns)});
}

void CudaOps::latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                           const AttentionBatch& batch, const KvPages& pages) {
  contract::latent_store(rows, norm, cos_sin, batch, pages);
  const KvLayout& layout = pages.layout;
  latent_rows(stream_, {.dtype = rows.dtype,
                        .from = rows.data,
                        .cos_sin = cos_sin.as<float>(),
                        .norm = norm.weight.as<float>(),
                        .epsilon = norm.epsilon,
                        .norm_size = narrow(norm.size > 0 ? norm.size : layout.value_dim),
                        .positions = batch.positions.as<int32_t>(),
                        .slots = batch.slots.as<int32_t>(),
                        .to = PagedRows(pages).keys.data,
                        .tokens = narrow(batch.tokens()),
                        .heads = 1,
                        .from_lanes = narrow(layout.key_dim),
                        .value_dim = narrow(layout.value_dim),
                        .key_dim = narrow(layout.key_dim),
                        .rotary_width = narrow(cos_sin.shape[1])});
}

void CudaOps::latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                             const AttentionBatch& batch, TensorView queries) {
  contract::latent_queries(x, heads, cos_sin, batch, queries);
  latent_rows(stream_, {.dtype = x.dtype,
                        .from = x.data,
                        .cos_sin = cos_sin.as<float>(),
                        .positions = batch.positions.as<int32_t>(),
                        .to = queries.data,
                        .tokens = narrow(batch.tokens()),
                        .heads = narrow(heads.query_heads),
                        .from_lanes = narrow(x.shape[1] / heads.query_heads),
                        .value_dim = narrow(heads.value_dim),
                        .key_dim = narrow(heads.key_dim),
                        .rotary_width = narrow(cos_sin.shape[1])});
}

}  // namespace maniple::cuda
