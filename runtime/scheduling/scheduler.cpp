#include <kernels/support/check.hpp>
#include <kernels/support/counted.hpp>
#include <runtime/scheduling/scheduler.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace maniple {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

Scheduler::Scheduler(SchedulerConfig config)
    : config_(std::move(config)), blocks_(config_.num_blocks, config_.block_size, config_.prefix_cache) {
  if (config_.max_num_seqs < 1 || config_.block_size < 1 || config_.num_blocks < 1 ||
      config_.max_model_len < 2)
    fail(ExitCode::usage,
         "sequences at once ({}), block size ({}) and kv blocks ({}) must be at least 1, the maximum length "
         "({}) 2",
         config_.max_num_seqs, config_.block_size, config_.num_blocks, config_.max_model_len);
  const uint64_t steps = config_.tokens_in_plan ? config_.steps_in_flight : 1;  // that share the decodes
  if (config_.max_num_batched_tokens * steps < config_.max_num_seqs)
    fail(ExitCode::usage,
         "tokens of a step ({}) must be at least the number of sequences at once ({}), or some would starve",
         config_.max_num_batched_tokens, config_.max_num_seqs);
  require(config_.steps_in_flight > 0, "a step is in flight while it is computed");
  for (Seat seat = config_.max_num_seqs; seat > 0; --seat) free_seats_.push_back(seat - 1);
}

std::optional<Rejection> Scheduler::add(GenerationRequest request) {
  if (auto reason = reason_to_reject(request)) return Rejection{std::move(*reason)};
  const uint64_t prompt = request.prompt.size();
  if (request.sampling.open_ended)
    request.sampling.max_tokens = static_cast<uint32_t>(longest(request) - prompt);
  else if (prompt + request.sampling.max_tokens > config_.max_model_len)
    ++counts_.clipped;
  auto sequence = std::make_shared<Sequence>();
  sequence->id = request.id;
  sequence->num_prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  sequence->tokens = std::move(request.prompt);
  sequence->sampling = std::move(request.sampling);
  sequences_.emplace(sequence->id, sequence);
  waiting_.push_back(std::move(sequence));
  return std::nullopt;
}

// Tokens of prompt and completion. An open-ended request takes no more than the cache holds. The last token
// of a request is never computed, so it needs no cache slot.
uint64_t Scheduler::longest(const GenerationRequest& request) const {
  const uint64_t prompt = request.prompt.size();
  if (!request.sampling.open_ended)
    return std::min<uint64_t>(prompt + request.sampling.max_tokens, config_.max_model_len);
  const uint64_t blocks = config_.fewest_blocks > 0 ? config_.fewest_blocks : config_.num_blocks;
  const uint64_t room = std::min<uint64_t>(blocks * config_.block_size + 1, config_.max_model_len);
  return std::max(room, prompt + 1);
}

std::optional<std::string> Scheduler::reason_to_reject(const GenerationRequest& request) const {
  const uint64_t prompt = request.prompt.size();
  if (sequences_.contains(request.id)) return fmt::format("request {} is being served already", request.id);
  if (prompt == 0) return "the prompt is empty";
  if (prompt + 1 > config_.max_model_len)
    return fmt::format("the prompt ({}) and one token to generate exceed the maximum length ({})",
                       counted(prompt, "token"), config_.max_model_len);
  const uint64_t tokens = longest(request);
  const size_t needed = blocks_for(tokens - 1, config_.block_size);
  if (needed > config_.num_blocks)
    return fmt::format(
        "{} need {} of {} and there are {}; lower {}the prompt ({})", counted(tokens, "token"),
        counted(needed, "kv block"), config_.block_size, config_.num_blocks,
        request.sampling.open_ended ? "" : fmt::format("max_tokens ({}) or ", request.sampling.max_tokens),
        prompt);
  return invalid_reason(request.sampling);
}

std::optional<StepPlan> Scheduler::schedule() {
  if (in_flight_.size() >= config_.steps_in_flight || (!in_flight_.empty() && decodes_lack_blocks()))
    return std::nullopt;
  context_ = attended_ = prompt_tokens_ = 0;
  Draft draft{.plan = {}, .sequences = {}, .budget = config_.max_num_batched_tokens};
  if (config_.policy == Policy::mixed) plan_decodes(draft);
  plan_chunks(draft);
  plan_admissions(draft);
  if (config_.policy == Policy::prefill_first && draft.sequences.empty()) plan_decodes(draft);
  if (draft.sequences.empty()) return std::nullopt;
  draft.plan.step = ++last_step_;
  draft.plan.replica = config_.replica;
  draft.plan.released = std::exchange(released_, {});
  in_flight_.push_back({last_step_, std::move(draft.sequences), draft.plan.sequences});
  return std::move(draft.plan);
}

// Whether the length limits allow a token after those in flight. It is not known yet whether one of
// those ends the request.
bool Scheduler::may_continue(const Sequence& sequence) const {
  return sequence.planned_tokens() < config_.max_model_len &&
         sequence.planned_tokens() - sequence.num_prompt_tokens < sequence.sampling.max_tokens;
}

// It has a token to compute that the plan or the device knows.
bool Scheduler::decodes_next(const Sequence& sequence) const {
  return sequence.decoding() && may_continue(sequence) &&
         !(config_.tokens_in_plan && sequence.num_sampling > 0);
}

// The sequences of a step that decode.
size_t Scheduler::share_of_decodes() const {
  if (!config_.tokens_in_plan) return running_.size();
  const auto decoding = static_cast<size_t>(
      std::ranges::count_if(running_, [](const SequencePtr& sequence) { return sequence->decoding(); }));
  return (decoding + config_.steps_in_flight - 1) / config_.steps_in_flight;
}

// True: a sequence has to be preempted, which waits until nothing is in flight.
bool Scheduler::decodes_lack_blocks() const {
  size_t missing = 0;
  for (const SequencePtr& sequence : running_)
    if (decodes_next(*sequence)) missing += blocks_.missing(*sequence);
  return missing > blocks_.num_free();
}

// make_room() may remove elements from the end of running_ during this loop.
void Scheduler::plan_decodes(Draft& draft) {
  const size_t most = share_of_decodes();
  for (size_t i = 0; i < running_.size() && draft.sequences.size() < most; ++i) {
    const SequencePtr sequence = running_[i];
    if (!decodes_next(*sequence)) continue;
    const size_t had = sequence->blocks.size();
    if (!make_room(draft, sequence)) return;
    if (const auto fresh = sequence->blocks.ids().subspan(had); !fresh.empty())
      draft.plan.new_blocks.push_back({sequence->seat, {fresh.begin(), fresh.end()}});
    plan(draft, sequence, 1);
  }
}

void Scheduler::plan_chunks(Draft& draft) {
  for (const SequencePtr& sequence : running_) {
    if (draft.budget == 0) return;
    if (sequence->decoding()) continue;
    plan(draft, sequence, std::min(sequence->num_known - sequence->planned_computed(), draft.budget));
  }
}

// First come, first served. Admits nobody in a step in which a running sequence lacked a block.
void Scheduler::plan_admissions(Draft& draft) {
  while (!draft.under_pressure && draft.budget > 0 && !waiting_.empty() && !free_seats_.empty()) {
    const SequencePtr sequence = waiting_.front();
    const bool whole_only = config_.policy == Policy::prefill_first && !draft.sequences.empty();
    if (whole_only && sequence->num_tokens() - blocks_.cached_length(*sequence) > draft.budget) return;
    if (!blocks_.admit(*sequence)) return;
    waiting_.pop_front();
    seat(draft, sequence);
    plan(draft, sequence, std::min(sequence->num_known - sequence->num_computed, draft.budget));
  }
}

// As in vLLM min_tokens forbids the model's ends also where ignore_eos lets a completion go on after them.
SamplingParams Scheduler::for_ranks(const Sequence& sequence) const {
  SamplingParams params = sequence.sampling;
  std::vector<int32_t>& ends = params.stop_token_ids;
  if (params.min_tokens > 0)
    ends.insert(ends.end(), config_.eos_token_ids.begin(), config_.eos_token_ids.end());
  else
    ends.clear();
  return params;
}

void Scheduler::seat(Draft& draft, const SequencePtr& sequence) {
  sequence->status = SequenceStatus::running;
  sequence->num_known = sequence->num_tokens();
  sequence->seat = free_seats_.back();
  free_seats_.pop_back();
  running_.push_back(sequence);
  counts_.cached_tokens += sequence->num_computed;
  const auto blocks = sequence->blocks.ids();
  draft.plan.admissions.push_back({.seat = sequence->seat,
                                   .cached_length = sequence->num_computed,
                                   .sampling = for_ranks(*sequence),
                                   .blocks = {blocks.begin(), blocks.end()},
                                   .request = sequence->id,
                                   .prompt_length = sequence->num_prompt_tokens});
}

void Scheduler::plan(Draft& draft, const SequencePtr& sequence, uint32_t query_length) {
  const uint32_t start = sequence->planned_computed();
  const uint32_t end = start + query_length;
  const bool prompt = !sequence->decoding(), known = prompt || config_.tokens_in_plan;
  if (prompt) prompt_tokens_ += query_length;
  if (known)
    draft.plan.known_tokens.insert(draft.plan.known_tokens.end(), sequence->tokens.begin() + start,
                                   sequence->tokens.begin() + end);
  draft.plan.sequences.push_back({.seat = sequence->seat,
                                  .query_length = query_length,
                                  .known = known ? query_length : 0,
                                  .rows_sampled = end == sequence->planned_tokens() ? 1U : 0U});
  draft.plan.state_hash = fold_state(draft.plan.state_hash, sequence->seat, start, sequence->blocks);
  context_ += start;
  attended_ += uint64_t{query_length} * start + uint64_t{query_length} * (query_length + 1) / 2;
  draft.budget -= query_length;
  draft.sequences.push_back(sequence);
  sequence->num_computing += query_length;
  sequence->num_sampling += draft.plan.sequences.back().rows_sampled;
}

// Preempts the newest sequences until this one has its blocks; false if it was preempted itself. Only with
// nothing in flight, when preempted blocks are free at once.
bool Scheduler::make_room(Draft& draft, const SequencePtr& sequence) {
  while (!blocks_.grow(*sequence)) {
    draft.under_pressure = true;
    const SequencePtr newest = running_.back();
    preempt(newest);
    if (newest == sequence) return false;
  }
  return true;
}

// Keeps the sequence's tokens; readmission computes them again, mostly from the prefix cache.
void Scheduler::preempt(const SequencePtr& sequence) {
  ++counts_.preemptions;
  leave_seat(*sequence);
  sequence->status = SequenceStatus::waiting;
  waiting_.push_front(sequence);
}

void Scheduler::leave_seat(Sequence& sequence) {
  blocks_.release(sequence, in_flight_.empty() ? 0 : in_flight_.back().step);
  free_seats_.push_back(sequence.seat);
  released_.push_back(sequence.seat);
  std::erase_if(running_, [&](const SequencePtr& s) { return s.get() == &sequence; });
}

std::vector<TokenEvent> Scheduler::commit(const StepResult& result) {
  check_answer(result);
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  blocks_.answered(step.step);
  std::vector<TokenEvent> events;
  auto token = result.tokens.begin();
  auto alternative = result.alternatives.begin();
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    Sequence& sequence = *step.sequences[i];
    sequence.num_computing -= step.planned[i].query_length;
    sequence.num_sampling -= step.planned[i].rows_sampled;
    if (sequence.status != SequenceStatus::finished) {
      sequence.num_computed += step.planned[i].query_length;
      blocks_.publish(sequence);
    }
    for (uint32_t n = 0; n < result.counts[i]; ++n, ++token) {
      const auto first = std::exchange(alternative, alternative + token->alternatives);
      if (sequence.status == SequenceStatus::finished) continue;
      if (token->id < 0) {
        events.push_back({sequence.id, token->id, 0, {}, FinishReason::not_finite});
        retire(step.sequences[i], FinishReason::not_finite);
        continue;
      }
      sequence.tokens.push_back(token->id);
      const FinishReason reason = reason_to_stop(sequence);
      events.push_back({sequence.id, token->id, token->logprob, {first, alternative}, reason});
      if (reason == FinishReason::length) count_length_end(sequence);
      if (reason != FinishReason::none) retire(step.sequences[i], reason);
    }
  }
  return events;
}

void Scheduler::check_answer(const StepResult& result) const {
  if (in_flight_.empty() || in_flight_.front().step != result.step)
    fail(ExitCode::fault, "a result for step {} arrived and one for step {} is due", result.step,
         in_flight_.empty() ? 0 : in_flight_.front().step);
  const bool counts_fit =
      std::ranges::equal(result.counts, in_flight_.front().planned, {}, {}, &SequenceStep::rows_sampled);
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

bool Scheduler::finish(RequestId request, FinishReason reason) {
  const auto found = sequences_.find(request);
  if (found == sequences_.end()) return false;
  retire(SequencePtr(found->second), reason);
  return true;
}

void Scheduler::retire(const SequencePtr& sequence, FinishReason reason) {
  if (sequence->status == SequenceStatus::running)
    leave_seat(*sequence);
  else
    std::erase(waiting_, sequence);
  sequence->status = SequenceStatus::finished;
  sequence->finish_reason = reason;
  sequences_.erase(sequence->id);
}

StepPlan Scheduler::command(Command command) {
  StepPlan plan;
  plan.step = ++last_step_;
  plan.replica = config_.replica;
  plan.command = command;
  return plan;
}

SchedulerCounts Scheduler::counts() const {
  return {counts_, waiting_.size(), running_.size(), blocks_.num_free() + blocks_.num_pending()};
}

// Sequences share whole blocks only, so no slot is counted twice.
KvUse Scheduler::kv_use() const {
  const size_t held = blocks_.num_blocks() - blocks_.num_free() - blocks_.num_pending();
  size_t empty = 0;
  for (const SequencePtr& sequence : running_)
    empty += sequence->blocks.size() * config_.block_size - sequence->planned_computed();
  return {held, held * config_.block_size - empty};
}

const Sequence* Scheduler::find(RequestId request) const {
  const auto found = sequences_.find(request);
  return found == sequences_.end() ? nullptr : found->second.get();
}

}  // namespace maniple
