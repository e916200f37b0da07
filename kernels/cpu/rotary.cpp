#include <kernels/contracts.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/cpu_pages.hpp>
#include <kernels/reference/rows.hpp>

#include <algorithm>

namespace maniple::cpu {
namespace {

const float* norm_weight(ConstTensorView weight) { return weight.empty() ? nullptr : weight.as<float>(); }

}  // namespace

void CpuOps::head_squares(ConstTensorView qkv, const HeadLayout& heads, TensorView out) {
  contract::head_squares(qkv, heads, out);
  pool_->parallel_ranges(qkv.shape[0], 4,
                         [&](IndexRange tokens) { reference::head_squares(qkv, heads, tokens, out); });
}

void CpuOps::rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                          ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                          const KvPages& pages) {
  contract::rotary_store(qkv, heads, norms, cos_sin, batch, queries, pages);
  const int64_t head_dim = heads.key_dim, rotary_width = cos_sin.shape[1];
  require(head_dim % 16 == 0 && head_dim <= max_rotary_head_dim, "rotary_store: head size");
  const CpuPages cache(pages);
  const RotaryKernel kernel = path_.of(qkv.dtype).rotary;
  const auto element = static_cast<int64_t>(size_of(qkv.dtype));
  const bool whole = !norms.squares.empty();
  const float *query_norm = norm_weight(norms.query), *key_norm = norm_weight(norms.key);
  pool_->parallel_ranges(batch.tokens(), 4, [&](IndexRange range) {
    for (int64_t t = range.begin; t < range.end; ++t) {
      const int64_t slot = batch.slots.as<int32_t>()[t], position = batch.positions.as<int32_t>()[t];
      const bool stores = slot >= 0;  // else padding, or a position of another owner: a query alone
      const int64_t place = std::max<int64_t>(slot, 0);
      kernel({qkv.data + t * heads.qkv_width() * element, queries.data + t * heads.query_width() * element,
              cache.key(place, 0), cache.value(place, 0), cache.head_bytes(),
              cos_sin.as<float>() + position * rotary_width, query_norm, key_norm, norms.epsilon,
              whole ? norms.inverse(t, true, head_dim) : -1, whole ? norms.inverse(t, false, head_dim) : -1,
              static_cast<int>(norms.size > 0 ? norms.size : head_dim), static_cast<int>(heads.query_heads),
              stores ? static_cast<int>(heads.kv_heads) : 0, static_cast<int>(head_dim),
              static_cast<int>(rotary_width), pages.layout.dtype == DType::fp8, pages.key_scale,
              pages.value_scale});
    }
  });
}

namespace {

// Norms a head, where the norm has a weight, and rotates it, rounded once.
void rotate_head(RotaryKernel kernel, const std::byte* from, std::byte* to, int64_t lanes,
                 const float* angles, int64_t rotary_width, const LatentNorm& norm = {}) {
  kernel({from, to, nullptr, nullptr, 0, angles, norm.weight.empty() ? nullptr : norm.weight.as<float>(),
          nullptr, norm.epsilon, -1, -1, static_cast<int>(norm.size > 0 ? norm.size : lanes), 1, 0,
          static_cast<int>(lanes), static_cast<int>(rotary_width), false, 1, 1});
}

bool rotates(int64_t lanes, int64_t rotary_width) {
  return lanes % 16 == 0 && lanes <= max_rotary_head_dim && rotary_width % 16 == 0 && rotary_width <= lanes;
}

}  // namespace

// A word of a latent row belongs to several positions: elements are stored one by one.
void CpuOps::latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                          const AttentionBatch& batch, const KvPages& pages) {
  contract::latent_store(rows, norm, cos_sin, batch, pages);
  const KvLayout& layout = pages.layout;
  const int64_t compressed = layout.value_dim, rotary = layout.key_dim - compressed,
                rotary_width = cos_sin.shape[1];
  require(rotates(compressed, 0) && rotates(rotary, rotary_width), "latent_store: lanes");
  const CpuPages cache(pages);
  const RotaryKernel kernel = path_.of(rows.dtype).rotary;
  const auto element = static_cast<int64_t>(size_of(rows.dtype));
  pool_->parallel_ranges(batch.tokens(), 4, [&](IndexRange range) {
    alignas(64) std::byte row[2 * max_rotary_head_dim * sizeof(float)];
    for (int64_t t = range.begin; t < range.end; ++t) {
      const int64_t slot = batch.slots.as<int32_t>()[t], position = batch.positions.as<int32_t>()[t];
      if (slot < 0) continue;
      const std::byte* const from = rows.data + t * layout.key_dim * element;
      const float* const angles = cos_sin.as<float>() + position * rotary_width;
      rotate_head(kernel, from, row, compressed, angles, 0, norm);
      rotate_head(kernel, from + compressed * element, row + compressed * element, rotary, angles,
                  rotary_width);
      std::byte* const to = cache.key(slot, 0);
      for (int64_t d = 0; d < layout.key_dim; ++d)
        std::copy_n(row + d * element, element, to + d * static_cast<int64_t>(sizeof(uint32_t)));
    }
  });
}

void CpuOps::latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                            const AttentionBatch& batch, TensorView queries) {
  contract::latent_queries(x, heads, cos_sin, batch, queries);
  const int64_t lanes = heads.key_dim - heads.value_dim, width = x.shape[1] / heads.query_heads,
                rotary_width = cos_sin.shape[1], tokens = batch.tokens();
  require(rotates(lanes, rotary_width), "latent_queries: lanes");
  const RotaryKernel kernel = path_.of(x.dtype).rotary;
  const auto element = static_cast<int64_t>(size_of(x.dtype));
  pool_->parallel_ranges(tokens, 4, [&](IndexRange range) {
    for (int64_t row = range.begin * heads.query_heads; row < range.end * heads.query_heads; ++row)
      rotate_head(kernel, x.data + ((row + 1) * width - lanes) * element,
                  queries.data + ((row + 1) * heads.key_dim - lanes) * element, lanes,
                  cos_sin.as<float>() + batch.positions.as<int32_t>()[row / heads.query_heads] * rotary_width,
                  rotary_width);
  });
}

}  // namespace maniple::cpu
