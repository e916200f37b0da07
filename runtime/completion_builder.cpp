#include <runtime/completion_builder.hpp>

#include <utility>

namespace maniple {

void CompletionBuilder::open(const GenerationRequest& request) {
  Open& open = open_[request.id];
  open.completion.id = request.id;
  open.completion.prompt_tokens = request.prompt.size();
  open.scores = request.sampling.logprobs >= 0;
  if (request.stop.empty()) return;
  open.detokenizer.emplace(*tokenizer_, /*skip_special_tokens=*/true);
  open.matcher.emplace(request.stop);
}

std::optional<Completion> CompletionBuilder::take(const TokenEvent& event) {
  const auto found = open_.find(event.request);
  if (found == open_.end()) return std::nullopt;
  Open& open = found->second;
  Completion& completion = open.completion;
  completion.tokens.push_back(event.token);
  if (open.scores) completion.scores.push_back({event.logprob, event.alternatives});
  completion.reason = event.finish_reason;
  const bool stopped_by_string = meets_stop_string(open, event);
  if (stopped_by_string) completion.reason = FinishReason::stop;
  if (completion.reason == FinishReason::none) return std::nullopt;
  if (!stopped_by_string) completion.text = text_of(completion);

  Completion done = std::move(completion);
  open_.erase(found);
  return done;
}

// Fills the text of a watched request as far as it is certain.
bool CompletionBuilder::meets_stop_string(Open& open, const TokenEvent& event) {
  if (!open.matcher || event.finish_reason == FinishReason::stop) return false;
  open.completion.text += open.matcher->push(open.detokenizer->push(event.token));
  if (!open.matcher->stopped() && event.finish_reason == FinishReason::length)
    open.completion.text += open.matcher->push(open.detokenizer->finish());
  return open.matcher->stopped();
}

std::string CompletionBuilder::text_of(const Completion& completion) const {
  if (!tokenizer_) return {};
  std::span<const int32_t> tokens = completion.tokens;
  if (completion.reason == FinishReason::stop) tokens = tokens.first(tokens.size() - 1);  // the stop token
  return tokenizer_->decode(tokens, /*skip_special_tokens=*/true);
}

}  // namespace maniple
