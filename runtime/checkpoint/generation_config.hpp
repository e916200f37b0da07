// What a model's authors suggest for sampling: the optional generation_config.json.
#pragma once

#include <kernels/support/sampling_params.hpp>

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
  StatedSampling sampling;  // without temperature: the file says nothing of sampling
  std::vector<int32_t> eos_token_ids;
  // Settings that would change the text and are not supported, such as num_beams.
  std::vector<std::string> warnings;
};

GenerationConfig parse_generation_config(std::string_view json, std::string_view where);

// The tokens that end a chat turn, sorted, without duplicates. Any of the three files may be the only
// one that names them.
std::vector<int32_t> union_of_eos(std::span<const int32_t> config, std::span<const int32_t> generation_config,
                                  std::optional<int32_t> tokenizer);

}  // namespace maniple
