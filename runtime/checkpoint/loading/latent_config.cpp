#include <runtime/checkpoint/loading/architecture.hpp>

#include <fmt/format.h>

namespace maniple {

void set_latent(ModelConfig& config, const LatentDefaults& defaults, const JsonFields& fields) {
  LatentConfig latent;
  const auto even = [&](const char* name, int64_t otherwise, int64_t most) {
    const int64_t size = fields.integer_or(name, otherwise, 2, most);
    if (size % 2 != 0) fields.refuse(name, "even sizes");
    return size;
  };
  constexpr int64_t most_lanes = 1024;  // of a head, of what the kernels have
  if (!fields.is_null("q_lora_rank"))
    latent.query_rank = fields.integer_or("q_lora_rank", defaults.query_rank, 0, 1 << 16);
  latent.rank = even("kv_lora_rank", defaults.rank, most_lanes);
  latent.plain = even("qk_nope_head_dim", defaults.plain, most_lanes);
  latent.rotary = even("qk_rope_head_dim", defaults.rotary, most_lanes);
  latent.value = fields.integer_or("v_head_dim", defaults.value, 1, most_lanes);
  latent.interleaved = fields.boolean_or("rope_interleave", true);
  if (latent.row_lanes() > most_lanes)
    fields.refuse("kv_lora_rank", fmt::format("up to {} lanes together with qk_rope_head_dim", most_lanes));
  config.index_topk = fields.integer_or("index_topk", defaults.index_topk, 0, 1 << 30);
  if (defaults.index_topk > 0 && !latent.interleaved)
    fields.refuse("rope_interleave", "true for this architecture");
  config.num_kv_heads = 1;
  config.head_dim = latent.plain + latent.rotary;
  config.latent = latent;
  for (LayerConfig& layer : config.layers) layer.attention = AttentionKind::latent;
}

}  // namespace maniple
