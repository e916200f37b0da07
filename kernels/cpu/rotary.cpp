#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/cpu/cpu_pages.hpp>
#include <kernels/reference/rows.hpp>

#include <algorithm>

namespace maniple::cpu {
namespace {

const float* norm_weight(ConstTensorView weight, int64_t lanes) {
  if (weight.empty()) return nullptr;
  require(weight.shape == Shape{lanes}, "rotary_store: a head norm of another size");
  return weight.as<float>();
}

}  // namespace

void CpuOps::head_squares(ConstTensorView qkv, const HeadLayout& heads, TensorView out) {
  pool_->parallel_ranges(qkv.shape[0], 4,
                         [&](IndexRange tokens) { reference::head_squares(qkv, heads, tokens, out); });
}

void CpuOps::rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                          ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                          const KvPages& pages) {
  const int64_t head_dim = heads.head_dim, rotary_width = cos_sin.shape[1];
  const CpuPages cache(pages);
  require(head_dim % 16 == 0 && head_dim <= max_rotary_head_dim, "rotary_store: head size");
  require(qkv.shape == Shape{batch.tokens(), heads.qkv_width()} &&
              queries.shape == Shape{batch.tokens(), heads.query_width()},
          "rotary_store: qkv or queries of another shape");
  require(pages.layout.holds(heads, qkv.dtype) && rotary_width % 16 == 0 && rotary_width <= head_dim,
          "rotary_store: pages or angles of another layout");
  require(queries.dtype == qkv.dtype, "rotary_store: qkv and queries differ in type");
  const RotaryKernel kernel = path_.of(qkv.dtype).rotary;
  const auto element = static_cast<int64_t>(size_of(qkv.dtype));
  const bool whole = !norms.squares.empty();
  const float* query_norm = norm_weight(norms.query, whole ? heads.query_width() : head_dim);
  const float* key_norm = norm_weight(norms.key, whole ? heads.kv_width() : head_dim);
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

}  // namespace maniple::cpu
