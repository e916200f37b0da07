// Turns the tokens of running requests into completions: text, stop strings, scores.
#pragma once

#include <runtime/requests.hpp>
#include <runtime/scheduling/scheduler.hpp>
#include <runtime/tokenizer/incremental_detokenizer.hpp>
#include <runtime/tokenizer/reasoning.hpp>
#include <runtime/tokenizer/stop_strings.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace maniple {

// Sets the text of a completion that has none; with `reasoning` the thought goes apart. Safe on any thread.
void add_text(const Tokenizer& tokenizer, FinishedRequest& completion, const Reasoning* reasoning = nullptr);

class CompletionBuilder {
 public:
  using OnText = std::function<void(RequestId request, std::string_view text)>;  // as CompletionSink has it

  // tokenizer: must outlive the builder; may be null if no request has stop strings or streams.
  explicit CompletionBuilder(const Tokenizer* tokenizer, OnText on_text = {})
      : tokenizer_(tokenizer), on_text_(std::move(on_text)) {}

  void open(const GenerationRequest& request);
  // Returns the completion when the event ends the request or completes a stop string; in the second case the
  // caller must end the sequence. Ignores events of requests that are not open.
  std::optional<FinishedRequest> take(const TokenEvent& event);

 private:
  struct Open {
    FinishedRequest completion;
    bool scores = false;
    bool streams = false;
    // Only for requests with stop strings or streams, which are detokenised as they grow:
    std::optional<IncrementalDetokenizer> detokenizer;
    std::optional<StopStringMatcher> matcher;
    std::string text;  // that later tokens cannot change
  };

  bool meets_stop_string(Open& open, const TokenEvent& event);

  const Tokenizer* tokenizer_;
  OnText on_text_;
  std::unordered_map<RequestId, Open> open_;
};

}  // namespace maniple
