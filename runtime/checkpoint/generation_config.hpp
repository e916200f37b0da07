// What a model's authors suggest for sampling: the optional generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// As in Hugging Face transformers, nothing is sampled unless do_sample is true. A filter that the file does
// not name is off.
struct GenerationConfig {
  std::optional<double> temperature;  // 0: greedy; absent: the file says nothing of sampling
  int32_t top_k = 0;                  // 0: off
  double top_p = 1.0;                 // 1: off
  double min_p = 0.0;                 // 0: off
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stop;
  std::vector<int32_t> eos_token_ids;
  // Settings that would change the text and are not supported, such as repetition_penalty.
  std::vector<std::string> warnings;
};

GenerationConfig parse_generation_config(std::string_view json, std::string_view where);

// The tokens that end a chat turn, sorted, without duplicates. Any of the three files may be the only
// one that names them.
std::vector<int32_t> union_of_eos(std::span<const int32_t> config, std::span<const int32_t> generation_config,
                                  std::optional<int32_t> tokenizer);

}  // namespace maniple
