// Scheduler, block manager and the ranks' table together, under random load. The fake model's next token is a
// hash of all tokens before it, read back from fake KV slots through the rank's block tables. A wrong slot, a
// block reused too early, a false prefix hit or a token lost in a preemption changes the output, which must
// equal that of the model run directly on the prompt.
#include <gtest/gtest.h>
#include <kernels/support/check.hpp>
#include <runtime/scheduling/scheduler.hpp>
#include <runtime/scheduling/sequence_table.hpp>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "scheduling_helpers.hpp"

namespace maniple {
namespace {

struct Prediction {
  int32_t token;
  float check;  // more bits of the same hash, in place of a log probability
};

uint64_t hash_of(std::span<const int32_t> tokens, uint64_t seed) {
  uint64_t hash = tokens.size() + seed;
  for (const int32_t token : tokens) hash = mix(hash, static_cast<uint64_t>(token));
  return hash;
}

// Ids 0 .. 3 are frequent: 2 ends a sequence, 3 may be a stop token.
Prediction predict(std::span<const int32_t> tokens, uint64_t seed) {
  const uint64_t hash = hash_of(tokens, seed);
  const auto id = static_cast<int32_t>(hash % 64 < 4 ? hash % 4 : 10 + hash % 50000);
  return {id, static_cast<float>((hash >> 32) & 0xffffff)};
}

// Of the last of the tokens, which a greedy draw takes half of the times.
SampledToken score(std::span<const int32_t> tokens) {
  const uint64_t hash = hash_of(tokens, 0);
  return {hash % 2 == 0 ? tokens.back() : tokens.back() + 1, static_cast<float>(hash >> 40), 0};
}

// Additions to a query beyond the scheduler's plan, at its front.
struct Surplus {
  uint32_t again = 0;           // tokens computed again
  std::vector<int32_t> tokens;  // that are sampled
};

class FakeRank {
 public:
  explicit FakeRank(const SchedulerConfig& config)
      : block_size_(config.block_size),
        table_(config.max_num_seqs, config.num_blocks, config.block_size, config.tokens_in_plan,
               config.max_rows, config.windows()),
        windows_(config.windows()),
        block_tables_(config.max_num_seqs, std::vector<int32_t>(config.max_model_len, -1)),
        window_tables_(block_tables_),
        kv_(size_t{config.num_blocks} * config.block_size, -1),
        window_kv_(size_t{windows_.blocks} * config.block_size, -1),
        last_token_(config.max_num_seqs, -1) {}

  // `busy` gets the slots that the plan reads or writes; `written` those that it writes anew.
  StepResult run(const StepPlan& plan, const std::vector<Surplus>& surplus, std::set<size_t>& busy,
                 std::set<size_t>& written) {
    StepResult result{.step = plan.step, .counts = {}, .tokens = {}, .alternatives = {}, .times = {}};
    const auto views = table_.apply(plan);
    for (const BlockCopy& copied : plan.copies) copy(copied, kv_, 0, written);
    for (const BlockCopy& copied : plan.window_copies) copy(copied, window_kv_, kv_.size(), written);
    for (const SequenceView& view : views) {
      std::copy(view.blocks.begin() + view.seen_blocks, view.blocks.end(),
                block_tables_[view.seat].begin() + view.seen_blocks);
      std::copy(view.window_blocks.begin() + view.seen_window_blocks, view.window_blocks.end(),
                window_tables_[view.seat].begin() + view.seen_window_blocks);
      write(view, surplus[static_cast<size_t>(&view - views.data())].again, written);
      for (uint32_t position = 0; position < view.past_length + view.query_length; ++position)
        busy.insert(slot(view, position));
      for (uint32_t position = first_seen(view); position < view.past_length + view.query_length; ++position)
        if (windows_.blocks > 0) busy.insert(kv_.size() + window_slot(view, position));
    }
    for (const SequenceView& view : views) {
      result.counts.push_back(view.rows());
      const std::vector<int32_t> tokens = read(view);
      const size_t known = view.past_length + view.known_tokens.size();
      for (size_t token = known - view.rows_scored; token < known; ++token) {
        std::vector<int32_t> scored(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(token));
        scored.push_back(view.known_tokens[token - view.past_length]);
        result.tokens.push_back(score(scored));
      }
      for (size_t row = tokens.size() - view.rows_sampled; row < tokens.size(); ++row) {
        const Prediction next = predict(std::span(tokens).first(row + 1), view.sampling->seed);
        last_token_[view.seat] = next.token;
        result.tokens.push_back({next.token, next.check, 0});
      }
    }
    return result;
  }

 private:
  size_t slot_of(const std::vector<int32_t>& table, uint32_t position) const {
    return static_cast<size_t>(table[position / block_size_]) * block_size_ + position % block_size_;
  }
  size_t slot(const SequenceView& view, uint32_t position) const {
    return slot_of(block_tables_[view.seat], position);
  }
  // Those of window blocks count on behind all others.
  size_t window_slot(const SequenceView& view, uint32_t position) const {
    return slot_of(window_tables_[view.seat], position);
  }
  uint32_t first_seen(const SequenceView& view) const {
    return view.past_length + 1 - std::min(view.past_length + 1, windows_.length);
  }

  void copy(const BlockCopy& copied, std::vector<int32_t>& kv, size_t first,
            std::set<size_t>& written) const {
    const size_t from = static_cast<size_t>(copied.from) * block_size_,
                 to = static_cast<size_t>(copied.to) * block_size_;
    for (size_t i = 0; i < block_size_; ++i) {
      written.insert(first + to + i);
      kv[to + i] = kv[from + i];
    }
  }

  void write(const SequenceView& view, uint32_t again, std::set<size_t>& written) {
    for (uint32_t i = 0; i < view.query_length; ++i) {
      const size_t at = slot(view, view.past_length + i);
      const int32_t token = i < view.known_tokens.size() ? view.known_tokens[i] : last_token_[view.seat];
      const bool shared = view.past_length + i < view.cached_length;
      const int32_t before = shared ? kv_[at] : std::exchange(kv_[at], token);
      if (i < again || shared)
        EXPECT_EQ(before, token) << "computed again";
      else
        written.insert(at);
      if (windows_.blocks == 0 || shared) continue;
      const size_t in_window = window_slot(view, view.past_length + i);
      window_kv_[in_window] = token;
      if (i >= again) written.insert(kv_.size() + in_window);
    }
  }

  std::vector<int32_t> read(const SequenceView& view) const {
    std::vector<int32_t> tokens;
    for (uint32_t position = 0; position < view.past_length + view.query_length; ++position)
      tokens.push_back(kv_[slot(view, position)]);
    for (uint32_t position = first_seen(view); position < tokens.size() && windows_.blocks > 0; ++position)
      EXPECT_EQ(window_kv_[window_slot(view, position)], tokens[position]) << "of a window";
    return tokens;
  }

  uint32_t block_size_;
  SequenceTable table_;
  WindowPool windows_;
  // By seat, updated from the new blocks of a view.
  std::vector<std::vector<int32_t>> block_tables_, window_tables_;
  std::vector<int32_t> kv_, window_kv_;
  std::vector<int32_t> last_token_;
};

struct Expected {
  std::vector<SampledToken> scores;  // of the prompt
  std::vector<int32_t> tokens;
  std::vector<float> checks;
  FinishReason reason = FinishReason::none;
};

// The model run directly, with a second implementation of the stop rules.
Expected direct(const GenerationRequest& request, uint32_t index, const SchedulerConfig& config) {
  Expected expected;
  std::vector<int32_t> all = request.prompt;
  if (index == 0 && request.sampling.prompt_logprobs >= 0)
    for (size_t token = request.score_from; token < all.size(); ++token)
      expected.scores.push_back(score(std::span(all).first(token + 1)));
  if (request.sampling.max_tokens == 0) expected.reason = FinishReason::length;
  while (expected.reason == FinishReason::none) {
    const Prediction next = predict(all, answer_seed(request.sampling.seed, index));
    all.push_back(next.token);
    expected.tokens.push_back(next.token);
    expected.checks.push_back(next.check);
    const bool may_stop = expected.tokens.size() >= request.sampling.min_tokens;
    const bool is_stop = (next.token == 2 && !request.sampling.ignore_eos) ||
                         (next.token == 3 && !request.sampling.stop_token_ids.empty());
    if (may_stop && is_stop)
      expected.reason = FinishReason::stop;
    else if (expected.tokens.size() == request.sampling.max_tokens || all.size() == config.max_model_len)
      expected.reason = FinishReason::length;
  }
  return expected;
}

class RandomLoad {
 public:
  RandomLoad(const SchedulerConfig& config, uint64_t seed)
      : config_(config), random_(seed), scheduler_(config), rank_(config) {}

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      if (below(3) == 0 && live_.size() < 30) add();
      if (below(40) == 0) abort();
      advance();
    }
    while (scheduler_.has_work() && !testing::Test::HasFailure()) advance();
    EXPECT_TRUE(live_.empty());
    EXPECT_EQ(scheduler_.counts().free_blocks, config_.num_blocks);
    EXPECT_EQ(scheduler_.kv_use().held_window_blocks, 0U);
    EXPECT_EQ(scheduler_.counts().running, 0U);
  }

  SchedulerCounts counts() const { return scheduler_.counts(); }
  size_t completed() const { return completed_; }
  size_t ahead() const { return ahead_; }
  size_t dropped() const { return sampled_ - received_; }
  size_t recomputed() const { return recomputed_; }
  size_t rows_more() const { return rows_more_; }
  size_t scores() const { return scores_; }
  size_t copies() const { return copies_; }
  size_t given_back() const { return given_back_; }

 private:
  struct Live {
    Expected expected;
    size_t scores = 0;
    size_t received = 0;
  };
  using Key = std::pair<RequestId, uint32_t>;
  struct Flight {
    StepResult result;
    std::set<Seat> seats;
    std::set<size_t> busy;
  };

  size_t below(size_t n) { return random_() % n; }

  // Few stems, so requests share prefixes; often a whole number of blocks.
  GenerationRequest random_request() {
    GenerationRequest request;
    request.id = next_id_++;
    const size_t stem = below(2) == 0 ? below(6) * config_.block_size : below(40);
    request.prompt = joined(counting(static_cast<int32_t>(1000 * below(3)), stem),
                            counting(static_cast<int32_t>(100 * below(50)), below(12)));
    if (request.prompt.empty()) request.prompt = {1};
    request.sampling.max_tokens = static_cast<uint32_t>(1 + below(30));
    request.sampling.min_tokens =
        static_cast<uint32_t>(below(3) == 0 ? below(request.sampling.max_tokens + 1) : 0);
    request.sampling.ignore_eos = below(4) == 0;
    if (below(2) == 0) request.sampling.stop_token_ids = {3};
    request.sampling.seed = below(3);
    if (below(3) == 0) request.sampling.n = static_cast<uint32_t>(1 + below(5));
    if (below(3) == 0) request.sampling.prompt_logprobs = 0;
    request.score_from = static_cast<uint32_t>(1 + below(request.prompt.size()));
    if (below(6) == 0) request.sampling.max_tokens = request.sampling.min_tokens = 0;
    return request;
  }

  void add() {
    const GenerationRequest request = random_request();
    if (scheduler_.add(request))
      ++rejected_;
    else
      for (uint32_t index = 0; index < request.sampling.n; ++index)
        live_[{request.id, index}] = {direct(request, index, config_)};
  }

  void abort() {
    if (live_.empty()) return;
    const auto chosen = std::next(live_.begin(), static_cast<ptrdiff_t>(below(live_.size())));
    const auto [request, index] = chosen->first;
    const FinishReason reason = below(2) == 0 ? FinishReason::abort : FinishReason::stop;
    if (below(2) == 0) {
      EXPECT_EQ(scheduler_.finish(request, reason, index), 1U);
      live_.erase(chosen);
    } else {
      EXPECT_EQ(scheduler_.finish(request, reason),
                std::erase_if(live_, [&, id = request](const auto& live) { return live.first.first == id; }));
    }
  }

  // Plans one more step or commits the oldest, at random where both are possible.
  void advance() {
    if (flying_.empty() || below(2) == 0) {
      const uint64_t preemptions = scheduler_.counts().preemptions;
      if (auto plan = scheduler_.schedule()) {
        EXPECT_TRUE(preemptions == scheduler_.counts().preemptions || plan->admissions.empty());
        launch(std::move(*plan));
      } else if (flying_.empty()) {
        EXPECT_FALSE(scheduler_.has_work()) << "nothing is planned although work exists";
      } else {
        commit();
      }
    } else {
      commit();
    }
    Inspector::check_integrity(scheduler_);
    const KvUse use = scheduler_.kv_use();
    if (config_.window > 0 && use.held_window_blocks < use.held_blocks) ++given_back_;
  }

  void launch(StepPlan plan) {
    const auto lengths = query_lengths(plan);
    EXPECT_FALSE(lengths.empty());
    EXPECT_LE(std::accumulate(lengths.begin(), lengths.end(), 0U), config_.max_num_batched_tokens);
    EXPECT_LE(scheduler_.counts().running, config_.max_num_seqs);
    EXPECT_LT(flying_.size(), config_.steps_in_flight);
    const auto surplus = below(2) == 0 ? widen(plan) : std::vector<Surplus>(lengths.size());
    Flight flight;
    std::set<size_t> written;
    flight.result = rank_.run(plan, surplus, flight.busy, written);
    take_off(flight.result, surplus);
    sampled_ += flight.result.tokens.size();
    copies_ += plan.copies.size();
    for (const SequenceStep& sequence : plan.sequences) flight.seats.insert(sequence.seat);
    for (const Seat seat : flight.seats)
      if (!flying_.empty() && flying_.back().seats.contains(seat)) ++ahead_;
    for (const Flight& earlier : flying_)
      for (const size_t slot : written)
        EXPECT_FALSE(earlier.busy.contains(slot))
            << "slot " << slot << " is written while a plan in flight uses it";
    flying_.push_back(std::move(flight));
  }

  // The scheduler does not plan these yet, but ranks must
  // support them: queries begin earlier and sample more rows.
  std::vector<Surplus> widen(StepPlan& plan) {
    std::map<Seat, const Sequence*> running;
    for (const auto& [request, live] : live_)
      if (const Sequence* sequence = scheduler_.find(request.first, request.second);
          sequence->status == SequenceStatus::running)
        running[sequence->seat] = sequence;
    const uint32_t most_again = config_.window > 0 ? 1 : 6;  // a window has no more
    std::vector<Surplus> surplus;
    size_t rows = 0;
    for (const SequenceStep& step : plan.sequences) rows += step.rows();
    const std::vector<int32_t> planned = std::exchange(plan.known_tokens, {});
    auto known = planned.begin();
    plan.state_hash = 0;
    for (SequenceStep& step : plan.sequences) {
      const Sequence& sequence = *running.at(step.seat);
      const uint32_t start = sequence.planned_computed() - step.query_length;
      const bool committed = start <= sequence.num_tokens();
      const uint32_t past =
          start - (committed ? static_cast<uint32_t>(below(std::min(start, most_again) + 1)) : 0);
      if (past < start) step.past_length = past;
      const auto tokens = sequence.tokens.begin();
      plan.known_tokens.insert(plan.known_tokens.end(), tokens + past, tokens + start);
      plan.known_tokens.insert(plan.known_tokens.end(), known, known + step.known);
      known += step.known;
      step.known += start - past;
      step.query_length += start - past;
      const size_t most = std::min<size_t>(step.query_length - 1, config_.max_rows - rows);
      const size_t more = step.rows_sampled == 0 || step.rows_scored > 0 ? 0 : below(most + 1);
      step.rows_sampled += static_cast<uint32_t>(more);
      rows += more;
      const size_t first = past + step.query_length - step.rows_sampled;
      surplus.push_back({start - past, {}});
      for (size_t row = first; row < first + more; ++row)
        surplus.back().tokens.push_back(
            predict(std::span(sequence.tokens).first(row + 1), sequence.sampling.seed).token);
      plan.state_hash = fold_state(plan.state_hash, step.seat, past, sequence.blocks, sequence.window_blocks);
      recomputed_ += start - past;
      rows_more_ += more;
    }
    return surplus;
  }

  static void take_off(StepResult& result, const std::vector<Surplus>& surplus) {
    std::vector<SampledToken> wanted;
    auto token = result.tokens.begin();
    for (size_t i = 0; i < surplus.size(); ++i) {
      for (const int32_t expected : surplus[i].tokens) EXPECT_EQ((token++)->id, expected);
      result.counts[i] -= static_cast<uint32_t>(surplus[i].tokens.size());
      wanted.insert(wanted.end(), token, token + result.counts[i]);
      token += result.counts[i];
    }
    EXPECT_EQ(token, result.tokens.end());
    result.tokens = std::move(wanted);
  }

  void commit() {
    const auto events = scheduler_.commit(flying_.front().result);
    flying_.pop_front();
    for (const TokenEvent& event : events) receive(event);
  }

  void receive(const TokenEvent& event) {
    const Key key{event.request, event.index};
    ASSERT_TRUE(live_.contains(key));
    Live& live = live_[key];
    const Expected& expected = live.expected;
    if (event.kind == TokenEvent::Kind::score) {
      ++scores_;
      ++received_;
      ASSERT_LT(live.scores, expected.scores.size());
      const SampledToken& wanted = expected.scores[live.scores++];
      ASSERT_EQ(event.logprob, wanted.logprob) << "request " << event.request;
      ASSERT_EQ(event.greedy, event.token == wanted.id);
      return;
    }
    ASSERT_EQ(live.scores, expected.scores.size()) << "scores come before tokens";
    if (event.kind == TokenEvent::Kind::end) {
      ASSERT_EQ(event.finish_reason, expected.reason);
      ASSERT_TRUE(expected.tokens.empty());
      live_.erase(key);
      ++completed_;
      return;
    }
    ++received_;
    ASSERT_LT(live.received, live.expected.tokens.size());
    ASSERT_EQ(event.token, live.expected.tokens[live.received]) << "request " << event.request;
    ASSERT_EQ(event.logprob, live.expected.checks[live.received]) << "request " << event.request;
    const bool last = ++live.received == live.expected.tokens.size();
    ASSERT_EQ(event.finish_reason, last ? live.expected.reason : FinishReason::none);
    if (!last) return;
    live_.erase(key);
    ++completed_;
  }

  SchedulerConfig config_;
  std::mt19937_64 random_;
  Scheduler scheduler_;
  FakeRank rank_;
  std::map<Key, Live> live_;
  std::deque<Flight> flying_;
  RequestId next_id_ = 1;
  size_t completed_ = 0;
  size_t rejected_ = 0;
  size_t ahead_ = 0;    // sequences planned while a result of theirs was in flight
  size_t sampled_ = 0;  // tokens, of aborted requests too
  size_t received_ = 0;
  size_t recomputed_ = 0;  // tokens
  size_t rows_more_ = 0;
  size_t scores_ = 0;
  size_t copies_ = 0;
  size_t given_back_ = 0;  // steps that hold fewer window blocks than others
};

struct Case {
  Policy policy;
  uint32_t steps_in_flight;
  bool prefix_cache;
  bool tokens_in_plan = false;
};

class RandomModel : public testing::TestWithParam<Case> {};

SchedulerConfig tiny(const Case& chosen, uint64_t seed) {
  return {.max_num_seqs = static_cast<uint32_t>(1 + seed % 8),
          .max_num_batched_tokens = static_cast<uint32_t>(8 + seed * 7 % 40),
          .max_rows = static_cast<uint32_t>(std::max<uint64_t>(1 + seed % 8, seed * 5 % 12)),
          .max_model_len = 64,
          .block_size = seed % 2 == 0 ? 4U : 8U,
          .num_blocks = static_cast<uint32_t>(8 + seed * 5 % 20 + (seed % 3 == 2 ? 40 : 0)),
          .window = static_cast<uint32_t>(seed % 3 * (seed % 3 == 1 ? 5 : 6)),
          .prefix_cache = chosen.prefix_cache,
          .eos_token_ids = {2},
          .policy = chosen.policy,
          .steps_in_flight = chosen.steps_in_flight,
          .tokens_in_plan = chosen.tokens_in_plan};
}

TEST_P(RandomModel, EveryOutputEqualsTheModelRunDirectlyOver10000Steps) {
  SchedulerCounts sum;
  size_t completed = 0, ahead = 0, dropped = 0, recomputed = 0, rows_more = 0, scores = 0, copies = 0,
         given_back = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomLoad load(tiny(GetParam(), seed), seed);
    try {
      load.run(1000);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    if (HasFailure()) return;
    sum.preemptions += load.counts().preemptions;
    sum.cached_tokens += load.counts().cached_tokens;
    completed += load.completed();
    ahead += load.ahead();
    dropped += load.dropped();
    recomputed += load.recomputed();
    rows_more += load.rows_more();
    scores += load.scores();
    copies += load.copies();
    given_back += load.given_back();
  }
  EXPECT_GT(completed, 300U);
  EXPECT_GT(sum.preemptions, 50U);
  EXPECT_GT(recomputed, 5000U);
  EXPECT_GT(rows_more, 1000U);
  EXPECT_GT(scores, 1000U);
  EXPECT_GT(copies, 100U) << "prompts are shared to their last token";
  EXPECT_GT(given_back, 1000U);
  if (GetParam().steps_in_flight == 1) {
    EXPECT_EQ(ahead, 0U);
  } else if (GetParam().tokens_in_plan) {
    EXPECT_GT(ahead, 100U) << "chunks of prompts follow each other";
  } else {
    EXPECT_GT(ahead, 4000U);
    EXPECT_GT(dropped, 50U);
  }
  EXPECT_GT(sum.cached_tokens, 1000U);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Policy policy : {Policy::mixed, Policy::prefill_first})
    for (const uint32_t steps_in_flight : {1U, 2U, 4U})
      for (const bool prefix_cache : {true, false}) all.push_back({policy, steps_in_flight, prefix_cache});
  for (const uint32_t steps_in_flight : {1U, 3U, 6U})
    for (const bool prefix_cache : {true, false})
      all.push_back({Policy::mixed, steps_in_flight, prefix_cache, /*tokens_in_plan=*/true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(, RandomModel, testing::ValuesIn(cases()), [](const auto& tested) {
  return std::string(tested.param.policy == Policy::mixed ? "mixed" : "prefill_first") + "_in_flight_" +
         std::to_string(tested.param.steps_in_flight) + (tested.param.tokens_in_plan ? "_pipeline" : "") +
         (tested.param.prefix_cache ? "_cached" : "_uncached");
});

}  // namespace
}  // namespace maniple
