// What the scheduler makes of the result of a step.
#include <kernels/support/check.hpp>
#include <runtime/scheduling/scheduler.hpp>

#include <algorithm>
#include <utility>

namespace maniple {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

std::vector<TokenEvent> Scheduler::commit(const StepResult& result) {
  check_answer(result);
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  blocks_.answered(step.step);
  std::vector<TokenEvent> events;
  auto row = result.tokens.begin();
  auto alternative = result.alternatives.begin();
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    const SequencePtr& sequence = step.sequences[i];
    const SequenceStep& planned = step.planned[i];
    sequence->num_computing -= planned.query_length;
    sequence->num_sampling -= planned.rows_sampled;
    sequence->num_scoring -= planned.rows_scored;
    if (sequence->status != SequenceStatus::finished) {
      sequence->num_computed += planned.query_length;
      blocks_.publish(*sequence);
      blocks_.leave_behind(*sequence);
    }
    for (uint32_t n = 0; n < planned.rows(); ++n, ++row) {
      const auto first = std::exchange(alternative, alternative + row->alternatives);
      if (sequence->status == SequenceStatus::finished) continue;
      TokenEvent event{
          .request = sequence->id,
          .index = sequence->index,
          .token = row->id,
          .position = n < planned.rows_scored ? sequence->first_scored + 1 : sequence->num_tokens(),
          .logprob = row->logprob,
          .alternatives = {first, alternative}};
      if (row->id < 0)
        event.finish_reason = FinishReason::not_finite;
      else
        take_row(*sequence, n < planned.rows_scored, event);
      end_by(event, sequence, events);
    }
    if (ends_without_token(*sequence))
      end_by({.request = sequence->id,
              .index = sequence->index,
              .kind = TokenEvent::Kind::end,
              .finish_reason = FinishReason::length},
             sequence, events);
  }
  return events;
}

void Scheduler::take_row(Sequence& sequence, bool scored, TokenEvent& event) const {
  if (scored) {
    const int32_t token = sequence.tokens[++sequence.first_scored];
    event.kind = TokenEvent::Kind::score;
    event.greedy = std::exchange(event.token, token) == token;
    return;
  }
  sequence.tokens.push_back(event.token);
  event.finish_reason = reason_to_stop(sequence);
}

bool Scheduler::ends_without_token(const Sequence& sequence) {
  return sequence.status != SequenceStatus::finished && !sequence.samples() &&
         sequence.num_computed == sequence.num_known;
}

void Scheduler::end_by(TokenEvent event, const SequencePtr& sequence, std::vector<TokenEvent>& events) {
  const FinishReason reason = event.finish_reason;
  events.push_back(std::move(event));
  if (reason == FinishReason::length) count_length_end(*sequence);
  if (reason != FinishReason::none) retire(sequence, reason);
}

void Scheduler::check_answer(const StepResult& result) const {
  if (in_flight_.empty() || in_flight_.front().step != result.step)
    fail(ExitCode::fault, "a result for step {} arrived and one for step {} is due", result.step,
         in_flight_.empty() ? 0 : in_flight_.front().step);
  const bool counts_fit =
      std::ranges::equal(result.counts, in_flight_.front().planned, {}, {}, &SequenceStep::rows);
  uint64_t tokens = 0, alternatives = 0;
  for (const uint32_t count : result.counts) tokens += count;
  for (const SampledToken& token : result.tokens) alternatives += token.alternatives;
  if (!counts_fit || tokens != result.tokens.size() || alternatives != result.alternatives.size())
    fail(ExitCode::fault, "the result of step {} ({} tokens) does not answer its plan ({} sequences)",
         result.step, result.tokens.size(), in_flight_.front().planned.size());
}

// vLLM's order, except that the maximum length ends a request even before min_tokens.
FinishReason Scheduler::reason_to_stop(const Sequence& sequence) const {
  const SamplingParams& params = sequence.sampling;
  const int32_t last = sequence.tokens.back();
  if (sequence.num_completion_tokens() >= params.min_tokens) {
    if (!params.ignore_eos && contains(config_.eos_token_ids, last)) return FinishReason::stop;
    if (contains(params.stop_token_ids, last)) return FinishReason::stop;
  }
  if (sequence.num_completion_tokens() >= params.max_tokens) return FinishReason::length;
  if (sequence.num_tokens() >= config_.max_model_len) return FinishReason::length;
  return FinishReason::none;
}

void Scheduler::count_length_end(const Sequence& sequence) {
  const SamplingParams& params = sequence.sampling;
  const bool cut = params.open_ended || sequence.num_completion_tokens() < params.max_tokens;
  const bool context = sequence.num_tokens() >= config_.max_model_len;
  if (cut) ++(context ? counts_.ended_by_context : counts_.ended_by_cache);
}

}  // namespace maniple
