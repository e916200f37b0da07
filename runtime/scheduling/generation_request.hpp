// A request to an engine.
#pragma once

#include <kernels/support/sampling_params.hpp>
#include <runtime/scheduling/sequence.hpp>

#include <cstdint>
#include <vector>

namespace maniple {

struct GenerationRequest {
  RequestId id = 0;             // unique among the unfinished; the caller's, e.g. the input's index
  std::vector<int32_t> prompt;  // a scheduler's caller has checked the ids against the vocabulary
  SamplingParams sampling;
  uint32_t score_from = 1;  // the first token of the prompt that prompt_logprobs are of; at least 1
  bool stream = false;      // CompletionSink::generated gets its text as it grows
};

}  // namespace maniple
