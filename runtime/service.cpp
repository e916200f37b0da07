#include <runtime/service.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace maniple {
namespace {

constexpr uint64_t most_scores = 4'000'000;  // of the prompt of one request

// Why the model cannot serve the request; absent if it can.
std::optional<std::string> reason_to_refuse(const GenerationRequest& request, int64_t vocabulary_size,
                                            std::span<const int32_t> ends, const Tokenizer* tokenizer) {
  for (const int32_t id : request.prompt)
    if (id < 0 || id >= vocabulary_size)
      return fmt::format("token id {} is not in the vocabulary (0 to {})", id, vocabulary_size - 1);
  if (!request.sampling.stop.empty() && !tokenizer)
    return "stop strings need a tokenizer, and the model has none; use stop_token_ids";
  if (!request.sampling.bad_words.empty() && !tokenizer)
    return "bad_words need a tokenizer, and the model has none";
  const auto alternatives = static_cast<uint64_t>(std::max(request.sampling.prompt_logprobs, 0));
  if (const size_t scored =
          request.prompt.size() - std::min<size_t>(request.score_from, request.prompt.size());
      scored * alternatives > most_scores)
    return fmt::format("prompt_logprobs ({}) of {} tokens are more than {} log-probabilities; ask for fewer",
                       alternatives, scored, most_scores);
  if (auto reason = invalid_reason(request.sampling)) return reason;
  return invalid_reason(request.sampling, vocabulary_size, ends);
}

// As in vLLM a word is also banned behind a space, where that is another first token and not more of them.
void add_bad_words(SamplingParams& sampling, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>>& ids = sampling.bad_word_ids;
  for (const std::string& word : sampling.bad_words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(" \t\n\r\f\v"), word.size()));
    const std::vector<int32_t> alone = tokenizer.encode(bare, false),
                               spaced = tokenizer.encode(" " + bare, false);
    if (!alone.empty()) ids.push_back(alone);
    if (!spaced.empty() && (alone.empty() || (spaced.size() == alone.size() && spaced[0] != alone[0])))
      ids.push_back(spaced);
  }
}

}  // namespace

RunSummary Service::run(RequestSource& source, const OnProgress& on_progress,
                        const std::atomic<int>& interrupt, const std::atomic<bool>& worker_failed) {
  const Clock::time_point start = Clock::now();
  std::exception_ptr failure;
  try {
    serve(source, on_progress, interrupt, worker_failed);
  } catch (...) {
    failure = std::current_exception();
  }
  turns_ = 0;
  if (!worker_failed) coordinator_.stop();
  if (failure) std::rethrow_exception(failure);

  static_cast<RequestCounts&>(summary_) = coordinator_.counts();
  summary_.interrupted = interrupt != 0 && (!source_ended_ || coordinator_.has_work());
  summary_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return summary_;
}

void Service::serve(RequestSource& source, const OnProgress& on_progress, const std::atomic<int>& interrupt,
                    const std::atomic<bool>& worker_failed) {
  const auto on_token = [this](const TokenEvent& event) { take_token(event); };
  const auto on_start = [this](const Admission& admission, uint32_t replica) {
    meter_.admitted(admission, replica);
    sink_.started(admission.request);
  };
  Backoff backoff;
  while (!interrupt && !worker_failed && (!source_ended_ || coordinator_.has_work())) {
    if (coordinator_.has_work() || source.moved()) ++turns_;
    meter_.turn();
    take_requests(source, interrupt);
    if (coordinator_.advance(on_token, on_start))
      backoff.reset();
    else
      backoff.pause();
    if (Clock::now() - reported_ >= std::chrono::milliseconds(500)) on_progress(progress());
  }
  if (interrupt && coordinator_.has_work()) sink_.stopping();
}

void Service::take_requests(RequestSource& source, const std::atomic<int>& interrupt) {
  while (!interrupt && !source_ended_ && coordinator_.wants_requests() && source.ready()) {
    ++turns_;
    const std::optional<GenerationRequest> request = source.next();
    source_ended_ = !request;
    if (request) admit(*request);
  }
}

void Service::admit(GenerationRequest request) {
  ++summary_.requests;
  if (tokenizer_) add_bad_words(request.sampling, *tokenizer_);
  if (const auto reason = reason_to_refuse(request, vocabulary_size_, ends_, tokenizer_))
    return refuse(request, *reason);
  if (const auto rejection = coordinator_.add(request)) return refuse(request, rejection->reason);
  summary_.prompt_tokens += request.prompt.size();
  prompt_tokens_ += request.prompt.size();
  builder_.open(request);
  meter_.arrived(request.id, request.prompt.size(), request.sampling.n);
}

void Service::refuse(const GenerationRequest& request, const std::string& reason) {
  FinishedRequest refused;
  refused.id = request.id;
  refused.error = reason;
  ++summary_.failed;
  meter_.refused(request.id, request.prompt.size());
  sink_.finished(std::move(refused));
}

void Service::take_token(const TokenEvent& event) {
  const bool failed = event.finish_reason == FinishReason::not_finite;
  if (!failed && event.kind == TokenEvent::Kind::token) {
    ++decoded_tokens_;
    ++summary_.completion_tokens;
    meter_.token(event.request, event.index);
  }
  CompletionBuilder::Ended ended = builder_.take(event);
  if (ended.reason == FinishReason::none) return;
  if (failed)
    coordinator_.finish(event.request, FinishReason::abort);
  else if (event.finish_reason == FinishReason::none)
    coordinator_.finish(event.request, FinishReason::stop, event.index);
  ++(failed                               ? summary_.failed
     : ended.reason == FinishReason::stop ? summary_.stopped
                                          : summary_.reached_length);
  if (!ended.request) return;
  meter_.ended(event.request, ended.reason);
  sink_.finished(std::move(*ended.request));
}

Progress Service::progress() {
  const double seconds = std::chrono::duration<double>(Clock::now() - reported_).count();
  const SchedulerCounts counts = coordinator_.counts();
  reported_ = Clock::now();
  return {.finished = summary_.requests - builder_.open_requests(),
          .failed = summary_.failed,
          .running = counts.running,
          .waiting = counts.waiting,
          .prefill_tokens_per_second = static_cast<double>(std::exchange(prompt_tokens_, 0)) / seconds,
          .decode_tokens_per_second = static_cast<double>(std::exchange(decoded_tokens_, 0)) / seconds,
          .completion_tokens = summary_.completion_tokens,
          .stall = coordinator_.stall()};
}

}  // namespace maniple
