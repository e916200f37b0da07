// Decides what each step of one replica computes. README.md: policies, differences from nano-vLLM and vLLM.
#pragma once

#include <runtime/scheduling/block_manager.hpp>
#include <runtime/scheduling/generation_request.hpp>
#include <runtime/scheduling/step_plan.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace maniple {

// mixed: running decodes, then chunks of running prompts, then admissions, all in one step. prefill_first:
// each step is all prompt or all decode, and only its first prompt may be cut, as in nano-vLLM.
enum class Policy : uint8_t { mixed, prefill_first };

struct SchedulerConfig {
  uint32_t max_num_seqs = 256;             // running at once: seats
  uint32_t max_num_batched_tokens = 8192;  // of one step; at least max_num_seqs
  uint32_t max_rows = 0;                   // of logits in a step; 0: max_num_seqs, which is the least
  uint32_t max_model_len = 4096;           // prompt and completion
  uint32_t block_size = 256;
  uint32_t num_blocks = 0;     // the smallest count of any rank of the replica
  uint32_t window = 0;         // tokens that layers of a pool of their own see; 0: there are none
  uint32_t fewest_blocks = 0;  // of any replica: limits open-ended requests alike on all; 0: num_blocks
  bool prefix_cache = true;
  std::vector<int32_t> eos_token_ids;
  Policy policy = Policy::mixed;
  uint32_t steps_in_flight = 1;  // limit of plans without a result; at least 1
  // For a pipeline, where the ranks that embed do not sample: plans carry all tokens, a sequence waits until its
  // last one is known, and a step takes its share of the decodes, so that the steps in flight are alike.
  bool tokens_in_plan = false;
  uint32_t replica = 0;

  WindowPool windows() const {
    const uint64_t tokens_in_flight = uint64_t{max_num_batched_tokens} * steps_in_flight;
    return WindowPool::of(window, block_size, max_num_seqs, tokens_in_flight, num_blocks);
  }
};

struct Rejection {
  std::string reason;  // for the user
};

// What a sequence got: a token, the score of a token of its prompt, or its end without a token. The last event of one that ends by itself
// carries the reason.
struct TokenEvent {
  enum class Kind : uint8_t { token, score, end };
  RequestId request = 0;
  uint32_t index = 0;  // of the answer
  Kind kind = Kind::token;
  int32_t token = 0;
  uint32_t position = 0;  // of the token
  bool greedy = false;    // a score is of the token that a greedy draw takes
  float logprob = 0.0F;
  std::vector<TokenLogprob> alternatives = {};
  FinishReason finish_reason = FinishReason::none;
};

// Sums since the start.
struct RequestCounts {
  uint64_t preemptions = 0;
  uint64_t cached_tokens = 0;  // that admissions found in the prefix cache
  uint64_t clipped = 0;        // requests whose max_tokens exceed what the context leaves
  // Requests that were cut: they wanted more tokens, or stated no limit.
  uint64_t ended_by_context = 0;
  uint64_t ended_by_cache = 0;  // only requests without a limit
};

struct SchedulerCounts : RequestCounts {
  size_t waiting = 0;
  size_t running = 0;
  size_t free_blocks = 0;  // released ones that wait for plans in flight included
};

// The KV cache of a replica: blocks that running sequences hold, and tokens in them, computed or planned.
struct KvUse {
  size_t held_blocks = 0;
  size_t tokens = 0;
  size_t held_window_blocks = 0;
};

class Scheduler {
 public:
  // Throws Error (usage) for a configuration that could not serve a single request.
  explicit Scheduler(SchedulerConfig config);

  // Queues the request, or returns why it can never be served.
  std::optional<Rejection> add(GenerationRequest request);

  // The next plan; absent if it must wait for results or there is no work. While fewer than steps_in_flight
  // plans are in flight it continues their sequences, whose next input is on the device. commit() drops a
  // token that follows the end of its sequence.
  std::optional<StepPlan> schedule();

  // Of the last plan: the sum of its sequences' lengths before it.
  uint64_t context() const { return context_; }
  // And the sum over its tokens of the positions that each sees, its own included.
  uint64_t attended() const { return attended_; }
  uint64_t prompt_tokens() const { return prompt_tokens_; }  // and its tokens that were not sampled here
  KvUse kv_use() const;

  // Takes the result of the oldest plan in flight. Throws Error (fault) if it does not answer that plan.
  std::vector<TokenEvent> commit(const StepResult& result);

  // Ends an answer, or all of a request, from outside (abort, stop string) in any state; a result still in flight for it is
  // dropped. Returns how many there were.
  size_t finish(RequestId request, FinishReason reason, std::optional<uint32_t> index = {});

  // A plan without sequences that takes the next step number. Ranks do not answer it.
  StepPlan command(Command command);

  bool has_work() const { return !sequences_.empty() || !in_flight_.empty(); }
  SchedulerCounts counts() const;
  const Sequence* find(RequestId request, uint32_t index = 0) const;

 private:
  friend struct Inspector;  // of the tests
  using SequencePtr = std::shared_ptr<Sequence>;
  struct InFlight {
    uint64_t step;
    std::vector<SequencePtr> sequences;
    std::vector<SequenceStep> planned;
  };
  // The plan being made.
  struct Draft {
    StepPlan plan;
    std::vector<SequencePtr> sequences;
    uint32_t budget;              // tokens left
    uint32_t more_rows = 0;       // of logits than the one that each running sequence keeps for a token
    bool under_pressure = false;  // a running sequence lacked a block
  };

  std::optional<std::string> reason_to_reject(const GenerationRequest& request) const;
  uint64_t longest(const GenerationRequest& request) const;
  void plan_decodes(Draft& draft);
  void plan_chunks(Draft& draft);
  bool plan_query(Draft& draft, const SequencePtr& sequence);
  void plan_admissions(Draft& draft);
  bool waits_for_prompt(const Sequence& sequence) const;
  uint32_t rows_left(const Draft& draft) const;
  uint32_t next_query(const Draft& draft, const Sequence& sequence) const;
  SamplingParams for_ranks(const Sequence& sequence) const;
  void seat(Draft& draft, const SequencePtr& sequence);
  void plan(Draft& draft, const SequencePtr& sequence, uint32_t query_length);
  bool may_continue(const Sequence& sequence) const;
  bool decodes_next(const Sequence& sequence) const;
  size_t share_of_decodes() const;
  bool decodes_lack_blocks() const;
  bool make_room(Draft& draft, const SequencePtr& sequence);
  void preempt(const SequencePtr& sequence);
  void leave_seat(Sequence& sequence);
  void retire(const SequencePtr& sequence, FinishReason reason);
  void take_row(Sequence& sequence, bool scored, TokenEvent& event) const;
  static bool ends_without_token(const Sequence& sequence);
  void end_by(TokenEvent event, const SequencePtr& sequence, std::vector<TokenEvent>& events);
  FinishReason reason_to_stop(const Sequence& sequence) const;
  void count_length_end(const Sequence& sequence);
  void check_answer(const StepResult& result) const;

  SchedulerConfig config_;
  BlockManager blocks_;
  std::unordered_map<RequestId, std::vector<SequencePtr>> sequences_;  // all unfinished
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;                         // oldest admission first
  std::vector<Seat> free_seats_;                             // taken from the back
  std::vector<Seat> released_;                               // since the last plan
  uint64_t context_ = 0, attended_ = 0, prompt_tokens_ = 0;  // of the last plan
  std::deque<InFlight> in_flight_;
  uint64_t last_step_ = 0;
  RequestCounts counts_;
};

}  // namespace maniple
