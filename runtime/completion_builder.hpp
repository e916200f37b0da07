// From the tokens of running requests to completions: text, stop strings, scores.
#pragma once

#include <runtime/requests.hpp>
#include <runtime/scheduling/scheduler.hpp>
#include <runtime/tokenizer/incremental_detokenizer.hpp>
#include <runtime/tokenizer/stop_strings.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace maniple {

// Gives a completion its text where it has none. Safe on any thread.
void add_text(const Tokenizer& tokenizer, Completion& completion);

class CompletionBuilder {
 public:
  using OnText = std::function<void(RequestId request, std::string_view text)>;  // as CompletionSink has it

  // The tokenizer is needed for stop strings and streams only, else it may be null. It must outlive the
  // builder.
  explicit CompletionBuilder(const Tokenizer* tokenizer, OnText on_text = {})
      : tokenizer_(tokenizer), on_text_(std::move(on_text)) {}

  void open(const GenerationRequest& request);
  // The completion, once the event ends it or completes a stop string (the caller then ends the sequence).
  // Events of closed requests are ignored.
  std::optional<Completion> take(const TokenEvent& event);

 private:
  struct Open {
    Completion completion;
    bool scores = false;
    bool streams = false;
    std::optional<IncrementalDetokenizer>
        detokenizer;  // of requests with stop strings or streams, which are watched as they grow
    std::optional<StopStringMatcher> matcher;
    std::string text;  // theirs, as far as it is certain
  };

  bool meets_stop_string(Open& open, const TokenEvent& event);

  const Tokenizer* tokenizer_;
  OnText on_text_;
  std::unordered_map<RequestId, Open> open_;
};

}  // namespace maniple
