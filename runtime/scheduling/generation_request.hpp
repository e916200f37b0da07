// A request to an engine.
#pragma once

#include <kernels/support/sampling_params.hpp>
#include <runtime/scheduling/sequence.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace maniple {

struct GenerationRequest {
  RequestId id = 0;             // unique among the unfinished; the caller's, e.g. the input's index
  std::vector<int32_t> prompt;  // a scheduler's caller has checked the ids against the vocabulary
  SamplingParams sampling;
  // A scheduler does not look at these three, which need a tokenizer:
  std::vector<std::string> stop;       // stop strings
  std::vector<std::string> bad_words;  // an engine adds their ids to those of sampling
  bool stream = false;                 // CompletionSink::generated gets its text as it grows
};

}  // namespace maniple
