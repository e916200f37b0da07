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

// Sets the text of an answer that has none; with `reasoning` the thought goes apart. Safe on any thread.
void add_text(const Tokenizer& tokenizer, Answer& answer, const Reasoning* reasoning = nullptr);

class CompletionBuilder {
 public:
  using OnText = std::function<void(RequestId request, std::string_view text)>;  // as CompletionSink has it

  // tokenizer: must outlive the builder; may be null if no request has stop strings or streams.
  explicit CompletionBuilder(const Tokenizer* tokenizer, OnText on_text = {})
      : tokenizer_(tokenizer), on_text_(std::move(on_text)) {}

  void open(const GenerationRequest& request);
  // What an event ends: an answer, also by a stop string, and then perhaps its request. The caller must end what goes on: the sequence after a
  // stop string, those of the other answers after an error.
  struct Ended {
    FinishReason reason = FinishReason::none;
    std::optional<FinishedRequest> request = {};
  };
  // Ignores events of answers that are not open.
  Ended take(const TokenEvent& event);
  size_t open_requests() const { return open_.size(); }

 private:
  // An answer as it grows. Only with stop strings or where it streams it is detokenised:
  struct Growing {
    std::optional<IncrementalDetokenizer> detokenizer = {};
    std::optional<StopStringMatcher> matcher = {};
    std::string text = {};  // that later tokens cannot change
  };
  struct Open {
    FinishedRequest request;
    std::vector<Growing> growing;  // by answer
    size_t unfinished = 0;         // answers
    bool scores = false;
    bool streams = false;
  };

  void append(Open& open, const TokenEvent& event);
  bool meets_stop_string(Open& open, const TokenEvent& event);

  const Tokenizer* tokenizer_;
  OnText on_text_;
  std::unordered_map<RequestId, Open> open_;
};

}  // namespace maniple
