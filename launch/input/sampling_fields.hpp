// Sampling settings from the command line or from one request. Absent ones are left to the layer below.
#pragma once

#include <cstdint>
#include <optional>
#include <runtime/requests.hpp>
#include <string>
#include <vector>

namespace maniple {

struct SamplingFields {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<uint32_t> max_tokens;
  std::optional<uint32_t> min_tokens;
  std::optional<bool> ignore_eos;
  std::optional<int32_t> logprobs;
  std::optional<std::vector<int32_t>> stop_token_ids;
  std::optional<std::vector<std::string>> stop;
  std::optional<uint64_t> seed;

  // Writes the stated settings over those of the layer below.
  void apply_to(GenerationRequest& request) const {
    SamplingParams& params = request.sampling;
    params.temperature = temperature.value_or(params.temperature);
    params.top_k = top_k.value_or(params.top_k);
    params.top_p = top_p.value_or(params.top_p);
    params.min_p = min_p.value_or(params.min_p);
    params.max_tokens = max_tokens.value_or(params.max_tokens);
    params.min_tokens = min_tokens.value_or(params.min_tokens);
    params.ignore_eos = ignore_eos.value_or(params.ignore_eos);
    params.logprobs = logprobs.value_or(params.logprobs);
    params.seed = seed.value_or(params.seed);
    if (stop_token_ids) params.stop_token_ids = *stop_token_ids;
    if (stop) request.stop = *stop;
  }
};

}  // namespace maniple
