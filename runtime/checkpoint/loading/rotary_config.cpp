#include <runtime/checkpoint/loading/architecture.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {
namespace {

constexpr double largest_theta = 1e15;

RotaryConfig llama3_rotary(const JsonFields& fields) {
  RotaryConfig rotary{.type = RotaryType::llama3};
  rotary.factor = fields.number("factor", 1.0, 1e6);
  rotary.low_freq_factor = fields.number("low_freq_factor", 1e-6, 1e6);
  rotary.high_freq_factor = fields.number("high_freq_factor", 1e-6, 1e6);
  rotary.original_max_position_embeddings = fields.integer("original_max_position_embeddings", 1, 1 << 30);
  if (rotary.high_freq_factor <= rotary.low_freq_factor)
    fields.refuse("high_freq_factor", fmt::format("more than low_freq_factor ({})", rotary.low_freq_factor));
  return rotary;
}

RotaryConfig yarn_rotary(const JsonFields& fields, int64_t positions) {
  RotaryConfig rotary{.type = RotaryType::yarn};
  rotary.original_max_position_embeddings =
      fields.integer_or("original_max_position_embeddings", positions, 1, 1 << 30);
  const double longer =
      static_cast<double>(positions) / static_cast<double>(rotary.original_max_position_embeddings);
  rotary.factor = fields.number_or("factor", std::max(longer, 1.0), 1.0, 1e6);
  rotary.beta_fast = fields.number_or("beta_fast", 32, 1e-6, 1e6);
  rotary.beta_slow = fields.number_or("beta_slow", 1, 1e-6, 1e6);
  rotary.truncate = fields.boolean_or("truncate", true);
  if (fields.find("attention_factor")) rotary.attention_factor = fields.number("attention_factor", 1e-6, 1e6);
  rotary.mscale = fields.number_or("mscale", 0, 0, 1e6);
  rotary.mscale_all_dim = fields.number_or("mscale_all_dim", 0, 0, 1e6);
  if (rotary.beta_fast < rotary.beta_slow)
    fields.refuse("beta_fast", fmt::format("beta_slow ({}) or more", rotary.beta_slow));
  if ((rotary.mscale == 0) != (rotary.mscale_all_dim == 0))
    fields.refuse(rotary.mscale == 0 ? "mscale" : "mscale_all_dim",
                  "both or none: programs disagree on what one alone means");
  return rotary;
}

// The theta may be inside, or beside it, or both if they agree.
RotaryConfig scaled_rotary(const Architecture& architecture, int64_t positions, const JsonFields& fields,
                           double outer_theta, bool outer_given) {
  fields.allow_only({"rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
                     "original_max_position_embeddings", "partial_rotary_factor", "beta_fast", "beta_slow",
                     "attention_factor", "mscale", "mscale_all_dim", "truncate"});
  if (architecture.partial_rotary == 1 && !fields.is_neutral("partial_rotary_factor", 1))
    fields.refuse("partial_rotary_factor", "1, or none");
  const std::string_view key = fields.find("type") && !fields.find("rope_type") ? "type" : "rope_type";
  const std::string type = fields.text_or(key, fields.find("factor") ? "missing" : "default");
  if (type != "default" && type != "llama3" && type != "yarn")
    fields.refuse(key, "\"default\", \"llama3\", \"yarn\"");
  RotaryConfig rotary = type == "llama3" ? llama3_rotary(fields)
                        : type == "yarn" ? yarn_rotary(fields, positions)
                                         : RotaryConfig{};
  rotary.theta = fields.number_or("rope_theta", outer_theta, 1.0, largest_theta);
  if (outer_given && rotary.theta != outer_theta)
    fields.refuse("rope_theta", fmt::format("the rope_theta beside it ({})", outer_theta));
  return rotary;
}

// How many lanes of a head rotate; 0: all.
int64_t rotary_width(const Architecture& architecture, int64_t head_dim, const JsonFields& fields) {
  if (architecture.partial_rotary == 1) return 0;
  double share = fields.number_or("partial_rotary_factor", architecture.partial_rotary, 1e-6, 1);
  for (const std::string_view name : {"rope_parameters", "rope_scaling"})
    if (!fields.is_neutral(name, {}))
      share = fields.object(name).number_or("partial_rotary_factor", share, 1e-6, 1);
  const int64_t otherwise = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  const int64_t width = fields.integer_or("rotary_dim", otherwise, 2, head_dim);
  if (width % 2 != 0 || width < 2)
    fields.refuse(fields.find("rotary_dim") ? "rotary_dim" : "partial_rotary_factor",
                  fmt::format("an even number of the {} lanes of a head", head_dim));
  return width == head_dim ? 0 : width;
}

}  // namespace

RotaryConfig rotary_of(const Architecture& architecture, const ModelConfig& config,
                       const JsonFields& fields) {
  RotaryConfig plain = architecture.rotary;
  const bool theta_given = fields.find("rope_theta") != nullptr;
  plain.theta = fields.number_or("rope_theta", architecture.defaults.rope_theta, 1.0, largest_theta);
  std::optional<RotaryConfig> found;
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    if (fields.is_neutral(name, {})) continue;
    const RotaryConfig rotary = scaled_rotary(architecture, config.max_position_embeddings,
                                              fields.object(name), plain.theta, theta_given);
    if (found && *found != rotary) fields.refuse(name, "what rope_parameters says, or none");
    found = rotary;
  }
  RotaryConfig rotary = found.value_or(plain);
  rotary.width = config.latent ? config.latent->rotary : rotary_width(architecture, config.head_dim, fields);
  return rotary;
}

}  // namespace maniple
