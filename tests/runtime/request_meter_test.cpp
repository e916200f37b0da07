#include <gtest/gtest.h>
#include <support/golden.hpp>
#include <support/serving.hpp>

#include <map>

namespace maniple {
namespace {

class Rows : public RunObserver {
 public:
  void step(const StepRow& row) override { steps.push_back(row); }
  void request(const RequestRow& row) override { requests.push_back(row); }
  std::vector<StepRow> steps;
  std::vector<RequestRow> requests;
};

TEST(RequestMeter, AndCoordinatorShowAnObserverEachRequestAndStep) {
  std::vector<GenerationRequest> requests(5);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = i;
    requests[i].prompt.assign(1 + 17 * i, static_cast<int32_t>(i));
    requests[i].sampling.ignore_eos = true;
    requests[i].sampling.max_tokens = static_cast<uint32_t>(3 + 5 * i);
  }
  requests.back().prompt = {-1};  // refused
  EngineOptions options;
  options.model = testing::model_directory("tiny-qwen3");
  options.dtype = DType::fp32;
  options.backend.kind = BackendKind::cpu;
  options.kv_memory = size_t{64} << 20;
  options.block_size = 32;
  options.tensor_size = 2;
  options.prefix_cache = false;
  Rows rows;
  const testing::Served served = testing::serve(4, options, requests, &rows);
  ASSERT_EQ(rows.requests.size(), requests.size());
  std::map<uint64_t, RequestRow> by_id;
  for (const RequestRow& row : rows.requests) by_id[row.id] = row;
  size_t prompts = 0, outputs = 0;
  for (size_t i = 0; i + 1 < requests.size(); ++i) {
    const RequestRow& row = by_id.at(i);
    EXPECT_STREQ(row.reason, "length");
    EXPECT_EQ(row.prompt, requests[i].prompt.size());
    EXPECT_EQ(row.output, requests[i].sampling.max_tokens);
    EXPECT_LE(row.arrival_s, row.admitted_s);
    EXPECT_LT(row.admitted_s, row.first_s);
    EXPECT_LE(row.first_s, row.done_s);
    EXPECT_DOUBLE_EQ(row.ttft_s + row.queue_s + (row.done_s - row.first_s), row.e2e_s);
    EXPECT_LE(row.itl_p50_s, row.itl_max_s);
    prompts += row.prompt;
    outputs += row.output;
  }
  EXPECT_STREQ(by_id.at(requests.size() - 1).reason, "error");
  std::map<uint32_t, uint64_t> steps;  // by replica
  size_t computed = 0, known = 0, sampled = 0, attended = 0;
  for (const StepRow& row : rows.steps) {
    EXPECT_EQ(row.step, ++steps[row.replica]);
    EXPECT_LE(row.planned_s, row.answered_s);
    EXPECT_GT(row.forward_s, 0);
    EXPECT_LE(row.comm_s, row.forward_s + row.sample_s);
    EXPECT_LE(row.schedule_s + row.forward_s + row.sample_s, row.answered_s - row.planned_s + 1e-5);
    EXPECT_LE(row.kv_tokens, row.held_blocks * options.block_size);
    EXPECT_GE(row.kv_tokens, row.context + row.tokens);
    computed += row.tokens;
    known += row.prompt_tokens;
    sampled += row.sampled;
    attended += row.attended;
  }
  for (size_t i = 0; i + 1 < requests.size(); ++i) {
    const size_t length =
        requests[i].prompt.size() + requests[i].sampling.max_tokens - 1;  // that is computed
    attended -= length * (length + 1) / 2;
  }
  EXPECT_EQ(attended, 0U);
  EXPECT_EQ(steps.size(), 2U);
  EXPECT_EQ(known, prompts);
  EXPECT_EQ(sampled, outputs);
  EXPECT_EQ(computed, prompts + outputs - (requests.size() - 1));  // the last token is not computed
  ASSERT_EQ(served.summary.collectives.size(), 4U);
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(served.summary.memory[rank].steps, steps[static_cast<uint32_t>(rank / 2)]);
    size_t calls = 0;
    double seconds = 0;
    for (const CollectiveUse& use : served.summary.collectives[rank]) {
      calls += use.count.calls;
      seconds += use.count.seconds;
      EXPECT_GE(use.count.bytes, use.count.calls << use.log2_bytes);
      EXPECT_LT(use.count.bytes, use.count.calls << (use.log2_bytes + 1));
    }
    EXPECT_GE(calls, 6 * steps[static_cast<uint32_t>(rank / 2)]);  // two sums in each of three layers
    EXPECT_NEAR(seconds, served.summary.ranks[rank].communication, 1e-6);
  }
}

}  // namespace
}  // namespace maniple
