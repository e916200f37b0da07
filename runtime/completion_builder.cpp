#include <runtime/completion_builder.hpp>

#include <fmt/format.h>

#include <utility>

namespace maniple {
namespace {

FinishedRequest failed(const FinishedRequest& request, const TokenEvent& event) {
  FinishedRequest failed;
  failed.id = request.id;
  failed.error = fmt::format(
      "a logit for position {} (the prompt has {} tokens) is NaN or infinite: a weight is no number, or an "
      "activation is beyond its type; try --dtype fp32",
      event.position, request.prompt_tokens);
  return failed;
}

}  // namespace

void add_text(const Tokenizer& tokenizer, Answer& answer, const Reasoning* reasoning) {
  if (answer.text && !reasoning) return;
  std::span<const int32_t> tokens = answer.tokens;
  if (!answer.text && answer.reason == FinishReason::stop)
    tokens = tokens.first(tokens.size() - 1);  // the stop token
  std::string whole = tokenizer.decode(tokens, /*skip_special_tokens=*/true);
  const size_t cut = answer.text ? whole.size() - answer.text->size() : 0;  // by a stop string
  if (!reasoning) {
    answer.text = std::move(whole);
    return;
  }
  auto [thought, text, calls] = reasoning->split(tokenizer, tokens, cut);
  answer.reasoning = std::move(thought);
  answer.text = std::move(text);
  answer.calls = std::move(calls);
}

void CompletionBuilder::open(const GenerationRequest& request) {
  Open& open = open_[request.id];
  open.request.id = request.id;
  open.request.prompt_tokens = request.prompt.size();
  if (request.sampling.prompt_logprobs >= 0) open.request.prompt = request.prompt;
  open.unfinished = request.sampling.n;
  open.request.answers.resize(open.unfinished);
  open.growing.resize(open.unfinished);
  open.scores = request.sampling.logprobs >= 0;
  open.streams = request.stream;
  if (request.sampling.stop.empty() && !request.stream) return;
  for (Growing& answer : open.growing) {
    answer.detokenizer.emplace(*tokenizer_, /*skip_special_tokens=*/true);
    answer.matcher.emplace(request.sampling.stop);
  }
}

CompletionBuilder::Ended CompletionBuilder::take(const TokenEvent& event) {
  const auto found = open_.find(event.request);
  if (found == open_.end()) return {};
  Open& open = found->second;
  if (event.finish_reason == FinishReason::not_finite) {
    const FinishedRequest error = failed(open.request, event);
    open_.erase(found);
    return {event.finish_reason, error};
  }
  if (event.kind == TokenEvent::Kind::score) {
    open.request.prompt_scores.push_back({{event.logprob, event.alternatives}, event.greedy});
    return {};
  }
  Answer& answer = open.request.answers[event.index];
  if (answer.reason != FinishReason::none) return {};
  append(open, event);
  if (answer.reason == FinishReason::none) return {};
  Ended ended{answer.reason};
  if (--open.unfinished > 0) return ended;
  ended.request = std::move(open.request);
  open_.erase(found);
  return ended;
}

void CompletionBuilder::append(Open& open, const TokenEvent& event) {
  Answer& answer = open.request.answers[event.index];
  answer.reason = event.finish_reason;
  if (event.kind == TokenEvent::Kind::end) return;
  answer.tokens.push_back(event.token);
  if (open.scores) answer.scores.push_back({event.logprob, event.alternatives});
  if (!meets_stop_string(open, event)) return;
  answer.reason = FinishReason::stop;
  answer.text = std::move(open.growing[event.index].text);
}

bool CompletionBuilder::meets_stop_string(Open& open, const TokenEvent& event) {
  auto& [detokenizer, matcher, text] = open.growing[event.index];
  if (!matcher || event.finish_reason == FinishReason::stop) return false;
  const std::string more = matcher->push(detokenizer->push(event.token));
  if (open.streams && !more.empty()) on_text_(event.request, more);
  text += more;
  if (!matcher->stopped() && event.finish_reason == FinishReason::length)
    text += matcher->push(detokenizer->finish());
  return matcher->stopped();
}

}  // namespace maniple
