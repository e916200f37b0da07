#include <kernels/support/check.hpp>
#include <kernels/support/counted.hpp>
#include <runtime/scheduling/scheduler.hpp>

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace maniple {
namespace {

// So many common tokens are worth waiting a step for.
constexpr uint32_t least_shared = 16;

// Of one answer. The first of a request scores the prompt.
Sequence make_sequence(const GenerationRequest& request, uint32_t index) {
  Sequence sequence;
  sequence.id = request.id;
  sequence.index = index;
  sequence.tokens = request.prompt;
  sequence.num_prompt_tokens = sequence.num_tokens();
  sequence.sampling = request.sampling;
  sequence.sampling.seed = answer_seed(request.sampling.seed, index);
  sequence.shares_prompt = request.sampling.n > 1;
  sequence.num_shared = sequence.num_prompt_tokens - 1;
  if (index > 0 || request.sampling.prompt_logprobs < 0) return sequence;
  const uint32_t shared = sequence.num_shared = sequence.first_scored = request.score_from - 1;
  if (shared < least_shared) return sequence;
  sequence.shares_prompt = true;
  sequence.shared_key = XXH3_64bits(sequence.tokens.data(), shared * sizeof(int32_t));
  return sequence;
}

void add_new(std::vector<NewBlocks>& to, Seat seat, const BlockTable& blocks, size_t had) {
  if (const auto fresh = blocks.ids().subspan(had); !fresh.empty())
    to.push_back({seat, {fresh.begin(), fresh.end()}});
}

}  // namespace

Scheduler::Scheduler(SchedulerConfig config)
    : config_(std::move(config)),
      blocks_(config_.num_blocks, config_.block_size, config_.prefix_cache, block_hash, config_.windows()) {
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
  config_.max_rows = std::max(config_.max_rows, config_.max_num_seqs);
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
  for (uint32_t index = 0; index < request.sampling.n; ++index) {
    const SequencePtr sequence =
        waiting_.emplace_back(std::make_shared<Sequence>(make_sequence(request, index)));
    sequences_[request.id].push_back(sequence);
  }
  return std::nullopt;
}

// Tokens of prompt and completion. An open-ended request takes no more than the cache holds. The last token
// of a request is never computed, so it needs no cache slot.
uint64_t Scheduler::longest(const GenerationRequest& request) const {
  const uint64_t prompt = request.prompt.size();
  if (!request.sampling.open_ended)
    return std::max(prompt, std::min<uint64_t>(prompt + request.sampling.max_tokens, config_.max_model_len));
  const uint64_t blocks = config_.fewest_blocks > 0 ? config_.fewest_blocks : config_.num_blocks;
  const uint64_t room = std::min<uint64_t>(blocks * config_.block_size + 1, config_.max_model_len);
  return std::max(room, prompt + 1);
}

std::optional<std::string> Scheduler::reason_to_reject(const GenerationRequest& request) const {
  const uint64_t prompt = request.prompt.size();
  if (sequences_.contains(request.id)) return fmt::format("request {} is being served already", request.id);
  if (prompt == 0) return "the prompt is empty";
  const bool generates = request.sampling.max_tokens > 0 || request.sampling.open_ended;
  if (generates ? prompt >= config_.max_model_len : prompt > uint64_t{config_.max_model_len} + 1)
    return fmt::format("the prompt ({}){} the maximum length ({})", counted(prompt, "token"),
                       generates ? " and one token to generate exceed" : " exceeds", config_.max_model_len);
  const uint64_t tokens = longest(request);
  const size_t needed = blocks_for(std::max<uint64_t>(tokens - 1, 1), config_.block_size);
  if (needed > config_.num_blocks)
    return fmt::format(
        "{} need {} of {} and there are {}; lower {}the prompt ({})", counted(tokens, "token"),
        counted(needed, "kv block"), config_.block_size, config_.num_blocks,
        request.sampling.open_ended ? "" : fmt::format("max_tokens ({}) or ", request.sampling.max_tokens),
        prompt);
  if (request.sampling.prompt_logprobs >= 0 && (request.score_from == 0 || request.score_from > prompt))
    return fmt::format("scores from token {} on are wanted of a prompt of {}", request.score_from, prompt);
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
  draft.plan.copies = blocks_.take_copies();
  draft.plan.window_copies = blocks_.take_window_copies();
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
  BlockManager::Lack all;
  for (const SequencePtr& sequence : running_) {
    if (!decodes_next(*sequence)) continue;
    const BlockManager::Lack lack = blocks_.missing(*sequence);
    all.blocks += lack.blocks;
    all.windows += lack.windows;
  }
  return !blocks_.has(all);
}

// make_room() may remove elements from the end of running_ during this loop.
void Scheduler::plan_decodes(Draft& draft) {
  const size_t most = share_of_decodes();
  for (size_t i = 0; i < running_.size() && draft.sequences.size() < most; ++i) {
    const SequencePtr sequence = running_[i];
    if (!decodes_next(*sequence)) continue;
    const size_t had = sequence->blocks.size(), had_windows = sequence->window_blocks.size();
    if (!make_room(draft, sequence)) return;
    add_new(draft.plan.new_blocks, sequence->seat, sequence->blocks, had);
    add_new(draft.plan.new_window_blocks, sequence->seat, sequence->window_blocks, had_windows);
    plan(draft, sequence, 1);
  }
}

void Scheduler::plan_chunks(Draft& draft) {
  for (const SequencePtr& sequence : running_) {
    if (draft.budget == 0) return;
    if (!sequence->decoding() && !plan_query(draft, sequence)) return;
  }
}

// A part of its prompt, as far as window blocks are free. False if none is.
bool Scheduler::plan_query(Draft& draft, const SequencePtr& sequence) {
  const uint32_t start = sequence->planned_computed();
  const size_t had = sequence->window_blocks.size();
  const uint32_t end = blocks_.cover(*sequence, start + next_query(draft, *sequence));
  if (end == start) return false;
  add_new(draft.plan.new_window_blocks, sequence->seat, sequence->window_blocks, had);
  plan(draft, sequence, end - start);
  return true;
}

// First come, first served, but for those that another one computes the prompt for. Admits nobody in a step in which a running sequence
// lacked a block.
void Scheduler::plan_admissions(Draft& draft) {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    if (draft.under_pressure || draft.budget == 0 || free_seats_.empty() || rows_left(draft) == 0) return;
    const SequencePtr sequence = *next;
    if (waits_for_prompt(*sequence)) {
      ++next;
      continue;
    }
    const bool whole_only = config_.policy == Policy::prefill_first && !draft.sequences.empty();
    if (whole_only && sequence->num_tokens() - blocks_.cached_length(*sequence) > draft.budget) return;
    if (!blocks_.admit(*sequence)) return;
    next = waiting_.erase(next);
    seat(draft, sequence);
    plan_query(draft, sequence);
  }
}

bool Scheduler::waits_for_prompt(const Sequence& sequence) const {
  const auto computes_it = [&](const SequencePtr& other) {
    return sequence.has_prompt_of(*other) && other->num_computed < sequence.num_shared;
  };
  return sequence.shares_prompt && std::ranges::any_of(running_, computes_it);
}

uint32_t Scheduler::rows_left(const Draft& draft) const {
  return config_.max_rows - static_cast<uint32_t>(running_.size()) - draft.more_rows;
}

// Tokens of the next query of a running sequence that does not decode, as many as rows are left for: at least 1.
uint32_t Scheduler::next_query(const Draft& draft, const Sequence& sequence) const {
  const uint32_t rows = rows_left(draft) + 1, start = sequence.planned_computed();
  uint32_t end = std::min(sequence.num_known, start + draft.budget);
  const auto rows_of = [&] {
    const bool samples = end == sequence.num_known && sequence.samples();
    return sequence.rows_scored(end) + (samples ? 1U : 0U);
  };
  if (const uint32_t scored = sequence.rows_scored(end); scored > rows) end -= scored - rows;
  if (rows_of() > rows) --end;
  return end - start;
}

// As in vLLM min_tokens forbids the model's ends also where ignore_eos lets a completion go on after them.
SamplingParams Scheduler::for_ranks(const Sequence& sequence) const {
  SamplingParams params = sequence.sampling;
  std::vector<int32_t>& ends = params.stop_token_ids;
  if (params.min_tokens > 0)
    ends.insert(ends.end(), config_.eos_token_ids.begin(), config_.eos_token_ids.end());
  else
    ends.clear();
  params.stop.clear();
  params.bad_words.clear();
  return params;
}

void Scheduler::seat(Draft& draft, const SequencePtr& sequence) {
  sequence->status = SequenceStatus::running;
  sequence->num_known = sequence->num_inputs();
  sequence->seat = free_seats_.back();
  free_seats_.pop_back();
  running_.push_back(sequence);
  counts_.cached_tokens += sequence->num_cached;
  const auto blocks = sequence->blocks.ids(), windows = sequence->window_blocks.ids();
  draft.plan.admissions.push_back({.seat = sequence->seat,
                                   .cached_length = sequence->num_cached,
                                   .sampling = for_ranks(*sequence),
                                   .blocks = {blocks.begin(), blocks.end()},
                                   .request = sequence->id,
                                   .prompt_length = sequence->num_prompt_tokens,
                                   .window_blocks = {windows.begin(), windows.end()}});
}

void Scheduler::plan(Draft& draft, const SequencePtr& sequence, uint32_t query_length) {
  const uint32_t start = sequence->planned_computed();
  const uint32_t end = start + query_length;
  const bool prompt = !sequence->decoding();
  if (prompt) prompt_tokens_ += query_length;
  SequenceStep step{.seat = sequence->seat,
                    .query_length = query_length,
                    .known = prompt || config_.tokens_in_plan ? query_length : 0,
                    .rows_sampled = end == sequence->planned_tokens() && sequence->samples() ? 1U : 0U,
                    .rows_scored = sequence->rows_scored(end)};
  if (start < sequence->num_cached) step.past_length = start;
  if (step.rows_scored > 0 && end < sequence->num_prompt_tokens) ++step.known;
  draft.plan.known_tokens.insert(draft.plan.known_tokens.end(), sequence->tokens.begin() + start,
                                 sequence->tokens.begin() + start + step.known);
  draft.plan.sequences.push_back(step);
  draft.plan.state_hash =
      fold_state(draft.plan.state_hash, sequence->seat, start, sequence->blocks, sequence->window_blocks);
  context_ += start;
  attended_ += uint64_t{query_length} * start + uint64_t{query_length} * (query_length + 1) / 2;
  draft.budget -= query_length;
  draft.sequences.push_back(sequence);
  draft.more_rows += std::max(step.rows(), 1U) - 1;
  sequence->num_computing += query_length;
  sequence->num_sampling += step.rows_sampled;
  sequence->num_scoring += step.rows_scored;
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

size_t Scheduler::finish(RequestId request, FinishReason reason, std::optional<uint32_t> index) {
  const auto found = sequences_.find(request);
  if (found == sequences_.end()) return 0;
  std::vector<SequencePtr> ended = found->second;
  std::erase_if(ended, [&](const SequencePtr& sequence) { return index && sequence->index != *index; });
  for (const SequencePtr& sequence : ended) retire(sequence, reason);
  return ended.size();
}

void Scheduler::retire(const SequencePtr& sequence, FinishReason reason) {
  if (sequence->status == SequenceStatus::running)
    leave_seat(*sequence);
  else
    std::erase(waiting_, sequence);
  sequence->status = SequenceStatus::finished;
  sequence->finish_reason = reason;
  std::vector<SequencePtr>& of_request = sequences_.at(sequence->id);
  std::erase(of_request, sequence);
  if (of_request.empty()) sequences_.erase(sequence->id);
}

StepPlan Scheduler::command(Command command) {
  StepPlan plan;
  plan.step = ++last_step_;
  plan.replica = config_.replica;
  plan.command = command;
  return plan;
}

SchedulerCounts Scheduler::counts() const {
  return {counts_, waiting_.size(), running_.size(),
          blocks_.pool().num_free() + blocks_.pool().num_pending()};
}

// Sequences share whole blocks only, so no slot is counted twice.
KvUse Scheduler::kv_use() const {
  const size_t held = blocks_.pool().num_held();
  size_t empty = 0;
  for (const SequencePtr& sequence : running_)
    empty += sequence->blocks.size() * config_.block_size - sequence->planned_computed();
  return {held, held * config_.block_size - empty, blocks_.window_pool().num_held()};
}

const Sequence* Scheduler::find(RequestId request, uint32_t index) const {
  const auto found = sequences_.find(request);
  if (found == sequences_.end()) return nullptr;
  const auto sequence = std::ranges::find(found->second, index, &Sequence::index);
  return sequence == found->second.end() ? nullptr : sequence->get();
}

}  // namespace maniple
