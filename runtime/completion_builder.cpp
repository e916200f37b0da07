#include <runtime/completion_builder.hpp>

#include <fmt/format.h>

#include <utility>

namespace maniple {

void add_text(const Tokenizer& tokenizer, FinishedRequest& completion, const Reasoning* reasoning) {
  if (completion.text && !reasoning) return;
  std::span<const int32_t> tokens = completion.tokens;
  if (!completion.text && completion.reason == FinishReason::stop)
    tokens = tokens.first(tokens.size() - 1);  // the stop token
  std::string whole = tokenizer.decode(tokens, /*skip_special_tokens=*/true);
  const size_t cut = completion.text ? whole.size() - completion.text->size() : 0;  // by a stop string
  if (!reasoning) {
    completion.text = std::move(whole);
    return;
  }
  auto [thought, answer] = reasoning->split(tokenizer, tokens, cut);
  completion.reasoning = std::move(thought);
  completion.text = std::move(answer);
}

void CompletionBuilder::open(const GenerationRequest& request) {
  Open& open = open_[request.id];
  open.completion.id = request.id;
  open.completion.prompt_tokens = request.prompt.size();
  open.scores = request.sampling.logprobs >= 0;
  open.streams = request.stream;
  if (request.stop.empty() && !request.stream) return;
  open.detokenizer.emplace(*tokenizer_, /*skip_special_tokens=*/true);
  open.matcher.emplace(request.stop);
}

std::optional<FinishedRequest> CompletionBuilder::take(const TokenEvent& event) {
  const auto found = open_.find(event.request);
  if (found == open_.end()) return std::nullopt;
  Open& open = found->second;
  FinishedRequest& completion = open.completion;
  if (event.finish_reason == FinishReason::not_finite) {
    FinishedRequest failed;
    failed.id = event.request;
    failed.reason = event.finish_reason;
    failed.error = fmt::format(
        "a logit for position {} (the prompt has {} tokens) is NaN or infinite: a weight is no number, or an "
        "activation is beyond its type; try --dtype fp32",
        completion.prompt_tokens + completion.tokens.size(), completion.prompt_tokens);
    open_.erase(found);
    return failed;
  }
  completion.tokens.push_back(event.token);
  if (open.scores) completion.scores.push_back({event.logprob, event.alternatives});
  completion.reason = event.finish_reason;
  if (meets_stop_string(open, event)) {
    completion.reason = FinishReason::stop;
    completion.text = std::move(open.text);
  }
  if (completion.reason == FinishReason::none) return std::nullopt;

  FinishedRequest done = std::move(completion);
  open_.erase(found);
  return done;
}

bool CompletionBuilder::meets_stop_string(Open& open, const TokenEvent& event) {
  if (!open.matcher || event.finish_reason == FinishReason::stop) return false;
  const std::string more = open.matcher->push(open.detokenizer->push(event.token));
  if (open.streams && !more.empty()) on_text_(event.request, more);
  open.text += more;
  if (!open.matcher->stopped() && event.finish_reason == FinishReason::length)
    open.text += open.matcher->push(open.detokenizer->finish());
  return open.matcher->stopped();
}

}  // namespace maniple
