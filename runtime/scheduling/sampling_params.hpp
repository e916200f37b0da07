// How a request is sampled and when it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

struct SamplingParams {
  float temperature = 1.0F;  // below 1e-5: greedy
  int32_t top_k = 0;         // 0 or -1: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  uint64_t seed = 0;  // of this request; the caller has replaced an unset one
  uint32_t max_tokens = 64;
  bool open_ended = false;  // ignores max_tokens: the context and the KV cache limit the length
  uint32_t min_tokens = 0;  // no stop token ends the request earlier; the logits are not changed
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids = {};
  int32_t logprobs = -1;  // -1: none; n >= 0: the chosen token's and n alternatives
};

// Why the parameters are invalid, as a message for the user; absent if they are valid.
std::optional<std::string> invalid_reason(const SamplingParams& params);

}  // namespace maniple
