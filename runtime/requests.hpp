// What goes into an engine and what comes out of it.
#pragma once

#include <runtime/scheduling/sampling_params.hpp>
#include <runtime/scheduling/sequence.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

struct GenerationRequest {
  RequestId id = 0;  // unique; the caller's, e.g. the input's index
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  std::vector<std::string> stop;  // strings; need a tokenizer
  bool stream = false;            // its text is told as it grows; needs a tokenizer
};

struct TokenScore {
  float logprob = 0;
  std::vector<TokenLogprob> alternatives;  // likeliest first
};

// How a request ended. Holds only what follows from the request, the model and the seed.
struct Completion {
  RequestId id = 0;
  std::vector<int32_t> tokens;  // a stop token is kept
  // Without stop tokens, special tokens and what follows a stop string. Absent where add_text is to make it.
  std::optional<std::string> text;
  std::vector<TokenScore> scores;  // one a token if asked for
  FinishReason reason = FinishReason::none;
  size_t prompt_tokens = 0;
  std::string error;  // why it was refused; then the rest is empty
};

// Rank 0 pulls requests as it has room, so that an input of any size is streamed.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // False: no request now, perhaps later.
  virtual bool ready() { return true; }
  // Asked while nothing runs: did the source do anything since it was asked last? A source that never does
  // again would let all ranks wait for ever.
  virtual bool moved() { return true; }
  // Nothing: there will be no more.
  virtual std::optional<GenerationRequest> next() = 0;
};

// Completions in the order in which they end. Called on the coordinator's thread, which must not wait for a
// disk.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  // The request's next step is its first, also after a preemption.
  virtual void started(RequestId /*request*/) {}
  // Of a request that streams: more of its text, whole characters that stay as they are. What is not told so
  // is in the completion, with the rest.
  virtual void generated(RequestId /*request*/, std::string_view /*text*/) {}
  // Before the end of the steps that run: what has started and not finished is given up on purpose.
  virtual void stopping() {}
  virtual void finished(Completion completion) = 0;
};

}  // namespace maniple
