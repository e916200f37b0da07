// Steps that are launched before earlier ones have run, and decode steps that are replayed: the same bits as
// one step after the other.
#include <gtest/gtest.h>
#include <emulation/emulated_backend.hpp>
#include <kernels/backend.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/checkpoint/model_config.hpp>
#include <runtime/checkpoint/weight_loader.hpp>
#include <runtime/execution/model_runner.hpp>
#include <runtime/scheduling/scheduler.hpp>
#include <support/deferred_device.hpp>
#include <support/golden.hpp>
#include <support/random_tensors.hpp>

#include <algorithm>
#include <list>
#include <map>
#include <tuple>

namespace maniple {
namespace {

using testing::DeferredDevice;
using testing::DeferredOps;
using testing::hashed;

constexpr uint32_t max_num_seqs = 512, block_size = 16, num_blocks = 6000;

// Everything a run of requests answered, bit by bit.
using Answers = std::map<RequestId, std::vector<std::tuple<int32_t, float, size_t>>>;

// A tiny model of random weights. A full batch of requests ends one by one, so that all sizes occur; then
// requests come while others decode, and end by stop tokens too.
class Load {
 public:
  explicit Load(uint32_t run_ahead, RequestId requests = 800)
      : config_(read_model_config(testing::model_directory("tiny-qwen3-kv1"))),
        run_ahead_(run_ahead),
        requests_(requests) {}

  Answers run(Ops& ops, bool graphs) {
    const int self[] = {0};
    SelfWorld world;
    const auto group = world.make_group(self, ops);
    const auto model = make_model(config_, {});
    std::atomic<uint32_t> layer = 0;
    make_weights(*model, ops, DType::fp32);
    fill_with_random(*model, ops, 5, layer);
    model->prepare(ops, limits.max_model_len);
    const HeadLayout heads = model->heads();
    ModelRunner runner(*model, ops, *group, limits,
                       {model->num_layers(), heads.kv_heads, heads.head_dim, block_size, DType::fp32},
                       num_blocks, DType::fp32, config_.vocab_size, layer);
    if (graphs) runner.capture_decodes();
    Scheduler scheduler({.max_num_seqs = max_num_seqs,
                         .max_num_batched_tokens = limits.max_num_batched_tokens,
                         .max_model_len = limits.max_model_len,
                         .block_size = block_size,
                         .num_blocks = num_blocks,
                         .eos_token_ids = {},
                         .run_ahead = run_ahead_});
    Answers answers;
    RequestId next = 0;
    while (next < requests_ || scheduler.has_work()) {
      for (; next < requests_ && (next < max_num_seqs || scheduler.counts().running <= next % 150); ++next)
        EXPECT_FALSE(scheduler.add(request(next)));
      if (const auto plan = scheduler.schedule())
        runner.launch(*plan);
      else
        for (const TokenEvent& event : scheduler.commit(runner.collect()))
          answers[event.request].emplace_back(event.token, event.logprob, event.alternatives.size());
    }
    return answers;
  }

 private:
  static constexpr RunnerLimits limits{max_num_seqs, 700, 320, block_size};

  // Three end at once, then one, at last each lives four steps longer than the one before it.
  static uint32_t max_tokens(RequestId id) {
    const auto n = static_cast<uint32_t>(id);
    if (n >= max_num_seqs) return 2 + n % 47;
    return n < 384 ? 10 + n / 3 : n < 508 ? n - 246 : 262 + 4 * (n - 508);
  }

  static Request request(RequestId id) {
    Request made;
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

  ModelConfig config_;
  uint32_t run_ahead_;
  RequestId requests_;
};

Backend cpu() { return make_backend({.kind = BackendKind::cpu}); }

const Answers& one_step_after_the_other() {
  static const Answers answers = [] {
    const Backend backend = cpu();
    return Load(0).run(*backend.ops, false);
  }();
  return answers;
}

TEST(ModelRunner, GivesTheSameBitsWhereWorkWaitsAndWhereDecodeStepsAreReplayed) {
  for (const bool graphs : {false, true}) {
    const Backend backend = cpu();
    DeferredDevice device;
    DeferredOps ops(device, *backend.ops);
    EXPECT_TRUE(Load(1).run(ops, graphs) == one_step_after_the_other()) << "graphs: " << graphs;
    EXPECT_EQ(device.replays().size(), graphs ? decode_buckets(max_num_seqs).size() : 0);
    for (const int replays : device.replays()) EXPECT_GE(replays, 2);
  }
}

TEST(ModelRunner, GivesTheSameTokensOnTheCudaBackendUnderEmulation) {
  const Backend backend = cpu(), emulated = emulation::emulated_cuda_backend(3);
  const Answers expected = Load(0, 24).run(*backend.ops, false);
  const Answers answers = Load(1, 24).run(*emulated.ops, false);
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

// A kernel that keeps the lengths of the step that is captured.
class BakingOps : public DeferredOps {
 public:
  BakingOps(DeferredDevice& device, Ops& inner) : DeferredOps(device, inner), deferred_(device) {}
  void attention(ConstTensorView queries, const HeadLayout& heads, const AttentionBatch& batch, float scale,
                 const KvPages& pages, TensorView out) override {
    AttentionBatch baked = batch;
    if (deferred_.recording()) {
      const auto* lengths = batch.past_lengths.as<int32_t>();
      lengths_.emplace_back(lengths, lengths + batch.sequences());
      baked.past_lengths = view_of(lengths_.back().data(), DType::int32, {batch.sequences()});
    }
    DeferredOps::attention(queries, heads, baked, scale, pages, out);
  }

 private:
  DeferredDevice& deferred_;
  std::list<std::vector<int32_t>> lengths_;
};

TEST(ModelRunner, ALengthThatIsBakedIntoAGraphWouldShow) {
  const Backend backend = cpu();
  DeferredDevice device;
  BakingOps ops(device, *backend.ops);
  EXPECT_FALSE(Load(1).run(ops, true) == one_step_after_the_other());
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
