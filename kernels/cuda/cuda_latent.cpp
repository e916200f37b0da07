#include <kernels/cuda/cuda_ops.hpp>
#include <kernels/cuda/latent.hpp>
#include <kernels/cuda/narrow.hpp>
#include <kernels/paged_rows.hpp>

namespace maniple::cuda {

void CudaOps::matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, TensorView out) {
  require(suits_heads(x, weights, out), "shapes of a product by heads");
  const auto heads = static_cast<int64_t>(weights.size());
  if (x.shape[0] > 0)
    multiply_heads(stream_, {x.dtype, out.dtype, x.data, addresses_of(weights), out.data, narrow(x.shape[0]),
                             narrow(heads), narrow(x.shape[1] / heads), narrow(out.shape[1] / heads),
                             narrow(weights[0]->rows), narrow(weights[0]->columns)});
}

void CudaOps::latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                           const AttentionBatch& batch, const KvPages& pages) {
  const KvLayout& layout = pages.layout;
  require(layout.shared && layout.dtype == rows.dtype &&
              rows.shape == Shape{batch.tokens(), layout.key_dim} &&
              norm.weight.shape == Shape{layout.value_dim} &&
              cos_sin.shape[1] <= layout.key_dim - layout.value_dim,
          "shapes of latent rows");
  latent_rows(stream_, {rows.dtype, rows.data, cos_sin.as<float>(), norm.weight.as<float>(), norm.epsilon,
                        narrow(norm.size > 0 ? norm.size : layout.value_dim), batch.positions.as<int32_t>(),
                        batch.slots.as<int32_t>(), PagedRows(pages).keys.data, narrow(batch.tokens()), 1,
                        narrow(layout.key_dim), narrow(layout.value_dim), narrow(layout.key_dim),
                        narrow(cos_sin.shape[1])});
}

void CudaOps::latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                             const AttentionBatch& batch, TensorView queries) {
  const int64_t width = x.shape[1] / heads.query_heads, rotary = heads.key_dim - heads.value_dim;
  require(queries.shape == Shape{batch.tokens(), heads.query_width()} && queries.dtype == x.dtype &&
              width >= rotary && cos_sin.shape[1] <= rotary,
          "shapes of latent queries");
  latent_rows(stream_,
              {x.dtype, x.data, cos_sin.as<float>(), nullptr, 0, 0, batch.positions.as<int32_t>(), nullptr,
               queries.data, narrow(batch.tokens()), narrow(heads.query_heads), narrow(width),
               narrow(heads.value_dim), narrow(heads.key_dim), narrow(cos_sin.shape[1])});
}

}  // namespace maniple::cuda
