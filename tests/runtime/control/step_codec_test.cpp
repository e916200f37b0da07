#include <gtest/gtest.h>
#include <kernels/support/check.hpp>
#include <runtime/control/step_codec.hpp>

#include <random>

namespace maniple {
namespace {

constexpr size_t header_bytes = 6, hash_bytes = 8;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_() >> (engine_() % 64); }  // all magnitudes
  uint32_t number() { return static_cast<uint32_t>(bits()); }
  float real() { return static_cast<float>(number()) / 7; }
  size_t below(size_t n) { return engine_() % n; }
  template <typename T, typename Make>
  std::vector<T> some(Make make) {
    std::vector<T> items(below(5));
    for (T& item : items) item = make();
    return items;
  }
  std::vector<int32_t> ids() {
    return some<int32_t>([this] { return static_cast<int32_t>(number()); });
  }

 private:
  std::mt19937_64 engine_;
};

SamplingParams random_sampling(Random& r) {
  return {.temperature = r.real(),
          .top_k = static_cast<int32_t>(r.number()),
          .top_p = r.real(),
          .min_p = r.real(),
          .seed = r.bits(),
          .max_tokens = r.number(),
          .min_tokens = r.number(),
          .ignore_eos = r.below(2) == 0,
          .stop_token_ids = r.ids(),
          .logprobs = static_cast<int32_t>(r.number()),
          .repetition_penalty = r.real(),
          .frequency_penalty = r.real(),
          .presence_penalty = r.real(),
          .allowed_token_ids = r.ids(),
          .logit_bias = r.some<TokenBias>([&] {
            return TokenBias{static_cast<int32_t>(r.number()), r.real()};
          }),
          .bad_word_ids = r.some<std::vector<int32_t>>([&] { return r.ids(); })};
}

StepPlan random_plan(Random& r) {
  StepPlan plan;
  plan.step = r.bits();
  plan.replica = r.number();
  plan.command = static_cast<Command>(r.below(2));
  plan.released = r.some<Seat>([&] { return r.number(); });
  plan.admissions = r.some<Admission>([&] {
    return Admission{r.number(), r.number(), random_sampling(r), r.ids(), r.number(), r.number(), r.ids()};
  });
  for (auto* blocks : {&plan.new_blocks, &plan.new_window_blocks})
    *blocks = r.some<NewBlocks>([&] { return NewBlocks{r.number(), r.ids()}; });
  for (auto* copies : {&plan.copies, &plan.window_copies})
    *copies = r.some<BlockCopy>([&] {
      return BlockCopy{static_cast<int32_t>(r.number()), static_cast<int32_t>(r.number())};
    });
  plan.sequences = r.some<SequenceStep>([&] {
    const uint32_t length = r.number();
    const auto unknown = static_cast<uint32_t>(length == 0 ? 0 : r.below(2));
    return SequenceStep{r.number(), r.below(2) == 0 ? std::optional(r.number()) : std::nullopt, length,
                        length - unknown, r.number()};
  });
  plan.known_tokens = r.ids();
  plan.state_hash = r.bits();
  return plan;
}

StepResult random_result(Random& r) {
  StepResult result;
  result.step = r.bits();
  result.counts = r.some<uint32_t>([&] { return r.number(); });
  result.tokens = r.some<SampledToken>([&] {
    return SampledToken{static_cast<int32_t>(r.number()), -r.real(), r.number()};
  });
  result.alternatives = r.some<TokenLogprob>([&] {
    return TokenLogprob{static_cast<int32_t>(r.number()), -r.real()};
  });
  result.times = {r.number(), r.number(), r.number()};
  return result;
}

void expect_refused(std::span<const std::byte> message) {
  const auto expect_error = [&](const char* kind, auto decode) {
    try {
      decode(message);
      ADD_FAILURE() << "accepted as " << kind;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::fault) << error.what();
    }
  };
  expect_error("a plan", decode_plan);
  expect_error("a result", decode_result);
}

std::vector<std::byte> sealed(std::vector<std::byte> message) {
  write_checksum(message);
  return message;
}

TEST(StepCodec, WhatIsEncodedIsDecodedForRandomPlansAndResults) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random r(seed);
    const StepPlan plan = random_plan(r);
    ASSERT_EQ(decode_plan(encode(plan)), plan) << "seed " << seed;
    const StepResult result = random_result(r);
    ASSERT_EQ(decode_result(encode(result)), result) << "seed " << seed;
  }
}

TEST(StepCodec, TheLargestAndSmallestNumbersSurvive) {
  StepPlan plan;
  plan.step = UINT64_MAX;
  plan.replica = UINT32_MAX;
  plan.state_hash = UINT64_MAX;
  plan.sequences = {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
                    {0, 0, 0, 0, 0},
                    {UINT32_MAX, {}, 1, 0, 1}};
  plan.known_tokens = {INT32_MIN, -1, 0, INT32_MAX};
  EXPECT_EQ(decode_plan(encode(plan)), plan);
}

TEST(StepCodec, ASteadyDecodeStepOf256SequencesTakesLessThan1300Bytes) {
  StepPlan plan;
  plan.step = 123456;
  for (Seat seat = 0; seat < 256; ++seat) plan.sequences.push_back({.seat = seat});
  StepPlan half = plan;
  half.sequences.resize(128);
  EXPECT_EQ(encode(plan).size() - encode(half).size(), 128 * 3);  // bytes a sequence
  for (Seat seat = 0; seat < 256; seat += 13)
    plan.new_blocks.push_back({seat, {static_cast<int32_t>(seat) * 31}});
  plan.released = {7, 200};
  plan.state_hash = UINT64_MAX;
  EXPECT_LT(encode(plan).size(), 1000);
  for (SequenceStep& sequence : plan.sequences)
    sequence.seat = sequence.seat * 89 % 256;  // as after many admissions and ends
  EXPECT_LT(encode(plan).size(), 1300);
}

TEST(StepCodec, AQueryThatLacksMoreThanItsLastTokenIsNeitherEncodedNorDecoded) {
  StepPlan plan;
  for (const auto& [length, known] : {std::pair{3U, 1U}, {3U, 4U}, {0U, UINT32_MAX}}) {
    plan.sequences = {{.seat = 0, .query_length = length, .known = known}};
    EXPECT_THROW(encode(plan), Error) << length << ' ' << known;
  }
  plan.sequences = {{.seat = 0}};
  auto message = encode(plan);
  const size_t query_length = message.size() - hash_bytes - 8 - 1 - 2;  // before: flags, tokens, state
  ASSERT_EQ(message[query_length], std::byte{1});
  message[query_length] = std::byte{0};
  expect_refused(sealed(message));
}

TEST(StepCodec, AMessageCutAtAnyByteIsRefused) {
  Random r(1);
  for (const auto& message : {encode(random_plan(r)), encode(random_result(r))})
    for (size_t length = 0; length < message.size(); ++length)
      expect_refused(std::span(message).first(length));
}

TEST(StepCodec, AMessageCutAtAnyByteIsRefusedEvenWithARightHash) {
  Random r(3);
  for (const auto& message : {encode(random_plan(r)), encode(random_result(r))})
    for (size_t length = hash_bytes; length < message.size(); ++length)
      expect_refused(sealed({message.begin(), message.begin() + static_cast<ptrdiff_t>(length)}));
}

TEST(StepCodec, AMessageWithAnyBitFlippedIsRefused) {
  Random r(2);
  for (auto message : {encode(random_plan(r)), encode(random_result(r))})
    for (size_t bit = 0; bit < 8 * message.size(); ++bit) {
      message[bit / 8] ^= std::byte{1} << (bit % 8);
      expect_refused(message);
      message[bit / 8] ^= std::byte{1} << (bit % 8);
    }
}

// The accepted bodies must be exactly those that encode writes.
TEST(StepCodec, AHostileBodyWithARightHashIsRefusedOrMeansWhatEncodeWouldWrite) {
  size_t accepted = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Random r(seed);
    auto message = encode(random_plan(r));
    for (size_t n = r.below(4); n < 4; ++n)
      message[header_bytes + r.below(message.size() - header_bytes)] = static_cast<std::byte>(r.below(256));
    write_checksum(message);
    try {
      ASSERT_EQ(encode(decode_plan(message)), message) << "seed " << seed;
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::fault) << "seed " << seed;
    }
  }
  EXPECT_GT(accepted, 100U);
  EXPECT_LT(accepted, 19900U);
}

// A result without tokens: header, step, three counts, three times, hash.
std::vector<std::byte> result_with_count(std::initializer_list<uint8_t> count) {
  auto message = encode(StepResult{});
  message.resize(header_bytes + 1);
  for (const uint8_t byte : count) message.push_back(std::byte{byte});
  message.resize(message.size() + 5 + hash_bytes);
  return sealed(message);
}

TEST(StepCodec, ACountBeyondTheMessageIsRefusedBeforeAnythingIsAllocated) {
  expect_refused(result_with_count({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}));
  expect_refused(result_with_count({0x80, 0x80, 0x80, 0x80, 0x10}));
  expect_refused(result_with_count({0x03}));
  EXPECT_EQ(decode_result(result_with_count({0x00})), StepResult{});
}

TEST(StepCodec, AnIntegerThatIsNotInItsShortestFormOrOverflowsIsRefused) {
  expect_refused(result_with_count({0x80, 0x00}));
  expect_refused(result_with_count({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}));
  expect_refused(result_with_count({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}));
}

TEST(StepCodec, AnotherMagicNumberVersionKindOrCommandIsRefusedByName) {
  const auto message_of = [](size_t index, uint8_t value) -> std::string {
    auto message = encode(StepPlan{});
    message[index] = std::byte{value};
    try {
      decode_plan(sealed(message));
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message_of(0, 0), "a step message is malformed: magic number");
  EXPECT_EQ(message_of(4, 1), "a step message is malformed: version");
  EXPECT_EQ(message_of(5, 2), "a step message is malformed: kind");
  EXPECT_EQ(message_of(8, 2), "a step message is malformed: unknown command");
  EXPECT_EQ(message_of(8, 1), "accepted");
}

TEST(StepCodec, BytesAfterTheLastFieldAreRefused) {
  auto message = encode(StepPlan{});
  message.resize(message.size() + 1);
  expect_refused(sealed(message));
}

TEST(StepCodec, AMessageAboveTheSizeLimitIsNotEncoded) {
  StepPlan plan;
  plan.known_tokens.assign(max_message_bytes / 5 + 1, -1);
  EXPECT_THROW(encode(plan), Error);
}

}  // namespace
}  // namespace maniple
