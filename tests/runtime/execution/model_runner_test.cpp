// Steps launched before earlier ones have run, replayed decode steps, queries that compute tokens again and
// sample several rows: the same bits as one step after the other.
#include <gtest/gtest.h>
#include <emulation/emulated_backend.hpp>
#include <kernels/backend.hpp>
#include <kernels/factory/make_backend.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/random_weights.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/execution/model_runner.hpp>
#include <runtime/scheduling/scheduler.hpp>
#include <support/deferred_device.hpp>
#include <support/golden.hpp>
#include <support/random_tensors.hpp>

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace maniple {
namespace {

using testing::DeferredDevice;
using testing::DeferredOps;
using testing::hashed;

constexpr uint32_t max_num_seqs = 512, block_size = 16, num_blocks = 6000;

// All answers to a run of requests, bit by bit.
using Answers = std::map<RequestId, std::vector<std::tuple<int32_t, float, size_t>>>;

constexpr RunnerLimits limits{max_num_seqs, 700, 320, block_size};

// A tiny model of random weights and its runner.
class TinyRunner {
 public:
  explicit TinyRunner(Ops& ops, const char* name = "tiny-qwen3-kv1")
      : config_(read_model_config(testing::model_directory(name))),
        groups_{.tensor = world_.make_group(self, ops)},
        model_(make_model(config_, {})) {
    make_weights(*model_, ops, DType::fp32, *scheme_of({}), nullptr);
    fill_with_random(*model_, ops, *scheme_of({}), 5, layer_);
    model_->prepare(ops, limits.max_model_len);
    const HeadLayout heads = model_->heads();
    const RunnerSizes sizes{.limits = limits,
                            .kv = {model_->num_layers(), KvLayout::of(heads, block_size, DType::fp32)},
                            .num_blocks = num_blocks,
                            .scratch = dry_run(*model_, {}, ops, limits, DType::fp32, config_),
                            .activation = DType::fp32,
                            .vocabulary_size = config_.vocab_size};
    runner_.emplace(*model_, ops, groups_, sizes, layer_);
  }
  ModelRunner* operator->() { return &*runner_; }
  // Of all sparse layers.
  std::vector<int32_t> expert_counts(Device& device) const {
    std::vector<int32_t> all;
    for (const ConstTensorView& counts : model_->expert_counts()) {
      all.resize(all.size() + static_cast<size_t>(counts.shape[0]));
      device.download(reinterpret_cast<std::byte*>(all.data() + all.size()) - counts.bytes(), counts.data,
                      counts.bytes());
    }
    return all;
  }

 private:
  static constexpr int self[] = {0};
  ModelConfig config_;
  SelfWorld world_;
  Groups groups_;
  std::unique_ptr<Model> model_;
  std::atomic<uint32_t> layer_ = 0;
  std::optional<ModelRunner> runner_;
};

// A full batch of requests ends one by one, so all sizes occur. Then
// requests arrive while others decode, and end by stop tokens too.
class Load {
 public:
  explicit Load(uint32_t steps_in_flight, RequestId requests = 800)
      : steps_in_flight_(steps_in_flight), requests_(requests) {}

  Answers run(Ops& ops, bool graphs) {
    TinyRunner runner(ops);
    return run(runner, graphs);
  }
  Answers run(TinyRunner& runner, bool graphs) {
    if (graphs) runner->capture_decodes();
    Scheduler scheduler({.max_num_seqs = max_num_seqs,
                         .max_num_batched_tokens = limits.step_tokens,
                         .max_model_len = limits.max_model_len,
                         .block_size = block_size,
                         .num_blocks = num_blocks,
                         .eos_token_ids = {},
                         .steps_in_flight = steps_in_flight_});
    Answers answers;
    RequestId next = 0;
    while (next < requests_ || scheduler.has_work()) {
      for (; next < requests_ && (next < max_num_seqs || scheduler.counts().running <= next % 150); ++next)
        EXPECT_FALSE(scheduler.add(request(next)));
      if (const auto plan = scheduler.schedule())
        runner->launch(*plan);
      else
        for (const TokenEvent& event : scheduler.commit(runner->collect()))
          answers[event.request].emplace_back(event.token, event.logprob, event.alternatives.size());
    }
    return answers;
  }

 private:
  // Three end at once, then one, at last each lives four steps longer than the one before it.
  static uint32_t max_tokens(RequestId id) {
    const auto n = static_cast<uint32_t>(id);
    if (n >= max_num_seqs) return 2 + n % 47;
    return n < 384 ? 10 + n / 3 : n < 508 ? n - 246 : 262 + 4 * (n - 508);
  }

  static GenerationRequest request(RequestId id) {
    GenerationRequest made;
    made.id = id;
    for (uint64_t t = 0; t <= hashed(id) % 20; ++t)
      made.prompt.push_back(static_cast<int32_t>(hashed(1000 * id + t) % 384));
    made.sampling.max_tokens = max_tokens(id);
    made.sampling.temperature = id % 2 == 0 ? 0.0F : 0.8F;
    made.sampling.seed = id;
    made.sampling.top_k = id % 11 == 5 ? 30 : 0;
    made.sampling.logprobs = id % 3 == 0 ? static_cast<int32_t>(id % 4) : 0;
    if (id >= max_num_seqs) made.sampling.stop_token_ids = {static_cast<int32_t>(id % 384)};
    return made;
  }

  uint32_t steps_in_flight_;
  RequestId requests_;
};

Backend cpu() { return make_backend({.kind = BackendKind::cpu}); }

const Answers& one_step_after_the_other() {
  static const Answers answers = [] {
    const Backend backend = cpu();
    return Load(1).run(*backend.ops, false);
  }();
  return answers;
}

TEST(ModelRunner, GivesTheSameBitsWhereWorkWaitsAndWhereDecodeStepsAreReplayed) {
  for (const bool graphs : {false, true}) {
    const Backend backend = cpu();
    DeferredDevice device;
    DeferredOps ops(device, *backend.ops);
    EXPECT_TRUE(Load(2).run(ops, graphs) == one_step_after_the_other()) << "graphs: " << graphs;
    EXPECT_EQ(device.replays().size(), graphs ? decode_buckets(max_num_seqs).size() : 0);
    for (const int replays : device.replays()) EXPECT_GE(replays, 2);
  }
}

// The rows that pad a captured step choose nobody: the load of the experts is that of the tokens.
TEST(ModelRunner, CountsTheSameChoicesOfExpertsWhereDecodeStepsAreReplayed) {
  const Load load(2, 90);
  std::vector<int32_t> expected;
  Answers answers;
  for (const bool graphs : {false, true}) {
    const Backend backend = cpu();
    DeferredDevice device;
    DeferredOps ops(device, *backend.ops);
    TinyRunner runner(ops, "tiny-qwen3-moe");
    const Answers found = Load(load).run(runner, graphs);
    const std::vector<int32_t> counts = runner.expert_counts(device);
    EXPECT_EQ(device.replays().empty(), !graphs);
    if (!graphs) answers = found, expected = counts;
    EXPECT_TRUE(found == answers);
    EXPECT_EQ(counts, expected);
    EXPECT_GT(std::accumulate(counts.begin(), counts.end(), 0), 0);
  }
}

// What no checkpoint fills, and counters: memory of a GPU does not begin as zeros.
TEST(ModelRunner, AModelBeginsAsZerosOnTheCudaBackendUnderEmulation) {
  const Backend emulated = emulation::emulated_cuda_backend(1);
  const std::unique_ptr<Model> model =
      make_model(read_model_config(testing::model_directory("tiny-qwen3-moe")), {});
  make_weights(*model, *emulated.ops, DType::fp32, *scheme_of({}), nullptr);
  model->prepare(*emulated.ops, 16);
  std::vector<ConstTensorView> all = model->expert_counts();
  EXPECT_FALSE(all.empty());
  for (const Parameter* parameter : model->parameters())
    all.push_back(parameter->spec.role == WeightRole::vector ? parameter->vector.view()
                                                             : parameter->matrix.packed.view());
  for (const ConstTensorView& tensor : all) {
    std::vector<std::byte> bytes(tensor.bytes());
    emulated.device->download(bytes.data(), tensor.data, bytes.size());
    EXPECT_EQ(static_cast<size_t>(std::ranges::count(bytes, std::byte{0})), tensor.bytes());
  }
}

TEST(ModelRunner, GivesTheSameTokensOnTheCudaBackendUnderEmulation) {
  const Backend backend = cpu(), emulated = emulation::emulated_cuda_backend(3);
  const Answers expected = Load(1, 24).run(*backend.ops, false);
  const Answers answers = Load(2, 24).run(*emulated.ops, false);
  ASSERT_EQ(answers.size(), expected.size());
  for (const auto& [request, tokens] : expected) {
    ASSERT_EQ(answers.at(request).size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto& [id, logprob, alternatives] = answers.at(request)[i];
      ASSERT_EQ(id, std::get<0>(tokens[i])) << "token " << i << " of request " << request;
      EXPECT_NEAR(logprob, std::get<1>(tokens[i]), 1e-3);
      EXPECT_EQ(alternatives, std::get<2>(tokens[i]));
    }
  }
}

// Operations that keep the lengths of the captured step, as a wrong kernel would.
class BakingOps : public DeferredOps {
 public:
  BakingOps(DeferredDevice& device, Ops& inner) : DeferredOps(device, inner), deferred_(device) {}

 private:
  void attend(const AttentionCall& call) override {
    AttentionCall baked = call;
    if (deferred_.recording()) {
      const auto* lengths = call.batch.past_lengths.as<int32_t>();
      lengths_.emplace_back(lengths, lengths + call.batch.sequences());
      baked.batch.past_lengths = view_of(lengths_.back().data(), DType::int32, {call.batch.sequences()});
    }
    DeferredOps::attend(baked);
  }

  DeferredDevice& deferred_;
  std::list<std::vector<int32_t>> lengths_;
};

TEST(ModelRunner, ALengthThatIsBakedIntoAGraphWouldShow) {
  const Backend backend = cpu();
  DeferredDevice device;
  BakingOps ops(device, *backend.ops);
  EXPECT_FALSE(Load(2).run(ops, true) == one_step_after_the_other());
}

// Two sequences in seats 3 and 0, with plans made here. Returns their answers by seat.
class ByHand {
 public:
  ByHand(Ops& ops, const SamplingParams& sampling, bool graphs) : runner_(ops), sampling_(sampling) {
    if (graphs) runner_->capture_decodes();
    for (const Seat seat : {3U, 0U})
      for (int32_t i = 0; i < 2; ++i) blocks_[seat].append(10 * static_cast<int32_t>(seat) + i);
  }

  static int32_t token(Seat seat, uint32_t position) {
    return static_cast<int32_t>(hashed(100 * seat + position) % 384);
  }

  // Both sequences start at `past`. All `query` tokens are known, except the last one if `last` is set.
  void step(uint32_t past, uint32_t query, uint32_t rows, bool last = false) {
    StepPlan plan;
    plan.step = ++step_;
    for (const auto& [seat, blocks] : blocks_) {
      if (step_ == 1)
        plan.admissions.push_back({seat, 0, sampling_, {blocks.ids().begin(), blocks.ids().end()}, seat});
      plan.sequences.push_back({seat, {}, query, query - (last ? 1 : 0), rows});
      if (past != length_) plan.sequences.back().past_length = past;
      for (uint32_t i = 0; i < plan.sequences.back().known; ++i)
        plan.known_tokens.push_back(token(seat, past + i));
      plan.state_hash = fold_state(plan.state_hash, seat, past, blocks);
    }
    length_ = past + query;
    runner_->launch(plan);
    const StepResult result = runner_->collect();
    EXPECT_EQ(result.counts, std::vector<uint32_t>(2, rows));
    ASSERT_EQ(result.tokens.size(), 2 * rows);
    auto alternative = result.alternatives.begin();
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      std::vector<std::pair<int32_t, float>>& answers = answers_[plan.sequences[i / rows].seat];
      answers.emplace_back(result.tokens[i].id, result.tokens[i].logprob);
      for (uint32_t n = 0; n < result.tokens[i].alternatives; ++n, ++alternative)
        answers.emplace_back(alternative->id, alternative->logprob);
    }
  }

  // Tokens and alternatives with their log-probabilities.
  std::map<Seat, std::vector<std::pair<int32_t, float>>> take() { return std::exchange(answers_, {}); }

 private:
  TinyRunner runner_;
  SamplingParams sampling_;
  std::map<Seat, BlockTable> blocks_;
  uint64_t step_ = 0;
  uint32_t length_ = 0;
  std::map<Seat, std::vector<std::pair<int32_t, float>>> answers_;
};

TEST(ModelRunner, SamplesTheSameBitsForSeveralRowsComputedAgainAsStepByStep) {
  const std::vector<SamplingParams> samplings = {
      {.temperature = 0},
      {.temperature = 0.8F, .seed = 7, .logprobs = 0},
      {.temperature = 0.9F, .top_k = 20, .seed = 8, .logprobs = 2}};
  for (const SamplingParams& sampling : samplings)
    for (const bool late : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "seed " << sampling.seed << (late ? ", graphs" : ""));
      const Backend backend = cpu();
      DeferredDevice device;
      DeferredOps deferred(device, *backend.ops);
      Ops& ops = late ? deferred : *backend.ops;

      ByHand single(ops, sampling, late);
      single.step(0, 18, 1);
      for (const uint32_t past : {18U, 19U}) single.step(past, 1, 1);
      const auto rows = single.take();
      single.step(20, 1, 1, true);
      const auto next = single.take();

      ByHand several(ops, sampling, late);
      several.step(0, 20, 0);
      several.step(15, 5, 3);
      EXPECT_EQ(several.take(), rows);
      several.step(20, 1, 1, true);
      EXPECT_EQ(several.take(), next) << "another row than the last was kept for the seat";

      several.step(15, 5, 3);  // the next query takes the last of these tokens
      several.take();
      several.step(17, 4, 4, true);
      auto expected = rows;
      for (const auto& [seat, answers] : next)
        expected[seat].insert(expected[seat].end(), answers.begin(), answers.end());
      EXPECT_EQ(several.take(), expected);
    }
}

TEST(ModelRunner, DecodeBucketsCoverEveryBatchSizeInStepsOfAtMost32) {
  EXPECT_EQ(decode_buckets(1), (std::vector<size_t>{1}));
  EXPECT_EQ(decode_buckets(6), (std::vector<size_t>{1, 2, 4, 6}));
  EXPECT_EQ(decode_buckets(40), (std::vector<size_t>{1, 2, 4, 8, 12, 16, 24, 32, 40}));
  const std::vector<size_t> all = decode_buckets(512);
  EXPECT_EQ(all.size(), 8 + 12 + 8 + 8);
  for (const size_t size : {128, 144, 256, 288, 512}) EXPECT_NE(std::ranges::find(all, size), all.end());
}

}  // namespace
}  // namespace maniple
