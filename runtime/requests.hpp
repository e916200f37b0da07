// The requests to an engine and its completions.
#pragma once

#include <runtime/scheduling/generation_request.hpp>
#include <runtime/tokenizer/reasoning.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// One of the answers to a request.
struct Answer {
  std::vector<int32_t> tokens;  // a stop token is kept
  // Without special tokens and the stop token; ends before the stop string. Absent: add_text makes it.
  std::optional<std::string> text;
  std::optional<std::string>
      reasoning;                   // the thought, where it goes apart; the text is then the answer behind it
  std::vector<ToolCall> calls;     // apart too, of a format that has them; else they stay in the text
  std::vector<TokenScore> scores;  // one per token if asked for
  FinishReason reason = FinishReason::none;
};

// How a request ended. Depends on the request, the model and the seed alone.
struct FinishedRequest {
  RequestId id = 0;
  std::vector<Answer> answers;  // by index: SamplingParams::n
  size_t prompt_tokens = 0;
  // Where SamplingParams::prompt_logprobs asks for scores of the prompt:
  std::vector<int32_t> prompt;
  std::vector<PromptScore> prompt_scores;  // of its last tokens, from GenerationRequest::score_from on
  std::string error;                       // why it was refused; then the rest is empty
};

// Rank 0 pulls requests when it has room: an input of any size is streamed.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // False: no request now, perhaps later.
  virtual bool ready() { return true; }
  // Called while nothing runs: whether the source made progress since the last call. All ranks would wait for
  // ever for a source that hangs.
  virtual bool moved() { return true; }
  // Absent: the input has ended.
  virtual std::optional<GenerationRequest> next() = 0;
};

// Receives completions in the order in which they end. Called on the coordinator's thread: no call
// may wait for a disk.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  // The request's first step is about to run, or its first after a preemption.
  virtual void started(RequestId /*request*/) {}
  // More text of a streaming request: whole characters that later tokens cannot change. The completion has
  // the whole text, with the part that was not passed here.
  virtual void generated(RequestId /*request*/, std::string_view /*text*/) {}
  // The run was interrupted: requests that have started and not finished are given up on purpose.
  virtual void stopping() {}
  virtual void finished(FinishedRequest completion) = 0;
};

}  // namespace maniple
