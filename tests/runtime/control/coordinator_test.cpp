#include <kernels/support/check.hpp>
#include <runtime/control/coordinator.hpp>
#include <runtime/control/step_codec.hpp>

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace maniple {
namespace {

// A replica whose results arrive after some polls: as many as the seed draws, none where there is none.
class LateReplica final : public Mailbox {
 public:
  explicit LateReplica(std::optional<uint32_t> seed) : random_(seed.value_or(0)), late_(seed) {}

  bool try_send(int, std::span<const std::byte> bytes) override {
    sent.emplace_back(bytes.begin(), bytes.end());
    const StepPlan plan = decode_plan(bytes);
    StepResult result;
    result.step = plan.step;
    for (const SequenceStep& sequence : plan.sequences) {
      result.counts.push_back(sequence.rows());
      for (uint32_t row = 0; row < sequence.rows(); ++row)
        result.tokens.push_back({static_cast<int32_t>((7 * sequence.seat + 5 * plan.step) % 11), 0, 0});
    }
    results_.push_back(encode(result));
    return true;
  }
  std::optional<Message> try_receive() override {
    if (results_.empty() || (late_ && random_() % 4 > 0)) return std::nullopt;
    const std::vector<std::byte> bytes = std::move(results_.front());
    results_.pop_front();
    return Message{0, bytes};
  }
  bool flushed() override { return true; }

  std::vector<std::vector<std::byte>> sent;

 private:
  std::mt19937 random_;
  std::optional<uint32_t> late_;
  std::deque<std::vector<std::byte>> results_;
};

// Requests that end by the token 3 or by length, more of them than seats.
std::vector<std::vector<std::byte>> plans(std::optional<uint32_t> late_by) {
  LateReplica mailbox(late_by);
  Coordinator coordinator(mailbox, {},
                          {.max_num_seqs = 4,
                           .max_num_batched_tokens = 16,
                           .block_size = 4,
                           .eos_token_ids = {3},
                           .steps_in_flight = 2},
                          {64});
  uint64_t given = 0;
  const auto refill = [&] {
    for (; given < 40 && coordinator.wants_requests(); ++given) {
      GenerationRequest request;
      request.id = given;
      request.prompt.assign(1 + given * 5 % 9, 1);
      request.sampling.max_tokens = static_cast<uint32_t>(1 + given % 7);
      EXPECT_FALSE(coordinator.add(request));
    }
  };
  for (refill(); coordinator.has_work(); refill())
    coordinator.advance([](const TokenEvent&) {}, [](const Admission&, uint32_t) {});
  EXPECT_EQ(given, 40U);
  return std::move(mailbox.sent);
}

TEST(Coordinator, PlansTheSameStepsWheneverResultsArrive) {
  const auto at_once = plans(std::nullopt);
  ASSERT_GT(at_once.size(), 40U);
  for (uint32_t seed = 1; seed <= 50; ++seed) EXPECT_EQ(plans(seed), at_once) << seed;
}

}  // namespace
}  // namespace maniple
