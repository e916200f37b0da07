// What a request asks of the sampler and when it ends.
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
  uint64_t seed = 0;  // of this request; the caller resolved an unset one
  uint32_t max_tokens = 64;
  bool open_ended = false;  // max_tokens does not count: what the context and the KV cache leave does
  uint32_t min_tokens = 0;  // no stop token ends the request earlier; the logits are left alone
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  int32_t logprobs = -1;  // -1: none; n >= 0: the chosen token's and n alternatives
};

// Why these cannot be served, in words for the user; nothing if they can.
std::optional<std::string> invalid_reason(const SamplingParams& params);

}  // namespace maniple
