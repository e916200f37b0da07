#include <runtime/checkpoint/generation_config.hpp>
#include <runtime/checkpoint/json_fields.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {

using nlohmann::json;

namespace {

// Settings that would change the text, each with the number that changes nothing.
constexpr std::pair<std::string_view, std::optional<double>> unsupported[] = {
    {"repetition_penalty", 1},
    {"encoder_repetition_penalty", 1},
    {"no_repeat_ngram_size", 0},
    {"typical_p", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"num_beams", 1},
    {"penalty_alpha", 0},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"guidance_scale", 1},
    {"bad_words_ids", {}},
    {"sequence_bias", {}},
    {"suppress_tokens", {}},
    {"begin_suppress_tokens", {}},
    {"forced_bos_token_id", {}},
    {"forced_eos_token_id", {}},
};

}  // namespace

GenerationConfig parse_generation_config(std::string_view text, std::string_view where) {
  const json parsed = parse_json(text, where);
  const JsonFields fields(parsed, where);
  GenerationConfig config;
  config.eos_token_ids = fields.token_ids("eos_token_id");
  for (const auto& [name, neutral] : unsupported)
    if (!fields.is_neutral(name, neutral))
      config.warnings.push_back(fmt::format("{}: {} is {}, which is not supported and has no effect", where,
                                            name, shown(*fields.find(name))));
  if (!fields.boolean_or("do_sample", false)) return config;
  config.temperature = fields.number_or("temperature", 1.0, 0.0, 1e6);
  config.top_k = static_cast<int32_t>(fields.integer_or("top_k", 0, 0, INT32_MAX));
  config.top_p = fields.number_or("top_p", 1.0, 1e-12, 1.0);
  config.min_p = fields.number_or("min_p", 0.0, 0.0, 1.0);
  return config;
}

std::optional<std::string> read_eos_token(const ModelFiles& files) {
  constexpr std::string_view name = "tokenizer_config.json";
  if (!files.has(name)) return {};
  const json parsed = parse_json(files.text(name), files.where(name));
  const JsonFields fields(parsed, files.where(name));
  const json* token = fields.find("eos_token");
  if (!token) return {};
  return token->is_object() ? fields.object("eos_token").text("content") : fields.text("eos_token");
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
