#include <runtime/checkpoint/generation_config.hpp>
#include <runtime/checkpoint/json_fields.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {

using nlohmann::json;

namespace {

// Settings that would change the text, each with the number that changes nothing (nothing: absent, empty or false). README.md lists all
// fields of the file.
constexpr std::pair<std::string_view, std::optional<double>> unsupported[] = {
    {"begin_suppress_tokens", {}},
    {"bad_words_ids", {}},
    {"constraints", {}},
    {"diversity_penalty", 0},
    {"dola_layers", {}},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"exponential_decay_length_penalty", {}},
    {"force_words_ids", {}},
    {"forced_bos_token_id", {}},
    {"forced_eos_token_id", {}},
    {"guidance_scale", 1},
    {"max_time", {}},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"no_repeat_ngram_size", 0},
    {"num_beams", 1},
    {"num_return_sequences", 1},
    {"penalty_alpha", 0},
    {"remove_invalid_values", {}},
    {"sequence_bias", {}},
    {"suppress_tokens", {}},
    {"token_healing", {}},
    {"top_h", {}},
    {"typical_p", 1},
    {"watermarking_config", {}},
};

std::optional<std::vector<std::string>> stop_strings(const JsonFields& fields) {
  const json* value = fields.find("stop_strings");
  if (!value) return std::nullopt;
  std::vector<std::string> stops;
  for (const json& stop : value->is_array() ? *value : json::array({*value})) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty())
      fields.refuse("stop_strings", "a text that is not empty, or a list of such");
    stops.push_back(stop);
  }
  return stops;
}

}  // namespace

GenerationConfig parse_generation_config(std::string_view text, std::string_view where) {
  const json parsed = parse_json(text, where);
  const JsonFields fields(parsed, where);
  GenerationConfig config;
  config.eos_token_ids = fields.token_ids("eos_token_id");
  for (const auto& [name, neutral] : unsupported)
    if (!fields.is_neutral(name, neutral) && *fields.find(name) != false)
      config.warnings.push_back(fmt::format("{}: {} is {}, which is not supported and has no effect", where,
                                            name, shown(*fields.find(name))));
  config.sampling.stop = stop_strings(fields);
  if (fields.find("max_new_tokens"))
    config.sampling.max_tokens = static_cast<uint32_t>(fields.integer("max_new_tokens", 1, UINT32_MAX));
  if (fields.find("repetition_penalty"))
    config.sampling.repetition_penalty = static_cast<float>(fields.number("repetition_penalty", 1e-6, 1e6));
  if (!fields.boolean_or("do_sample", false)) {
    if (fields.find("do_sample")) config.sampling.temperature = 0.0F;
    return config;
  }
  config.sampling.temperature = static_cast<float>(fields.number_or("temperature", 1.0, 0.0, 1e6));
  config.sampling.top_k =
      static_cast<int32_t>(std::max<int64_t>(0, fields.integer_or("top_k", 0, -1, INT32_MAX)));
  config.sampling.top_p = static_cast<float>(fields.number_or("top_p", 1.0, 1e-12, 1.0));
  config.sampling.min_p = static_cast<float>(fields.number_or("min_p", 0.0, 0.0, 1.0));
  return config;
}

std::vector<int32_t> union_of_eos(std::span<const int32_t> config, std::span<const int32_t> generation_config,
                                  std::optional<int32_t> tokenizer) {
  std::vector<int32_t> ids(config.begin(), config.end());
  ids.insert(ids.end(), generation_config.begin(), generation_config.end());
  if (tokenizer) ids.push_back(*tokenizer);
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace maniple
