#include <kernels/subjects.hpp>

#include <map>
#include <numeric>
#include <random>

namespace maniple {
namespace {

using namespace testing;

class AdjustLogits : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Every, AdjustLogits, ::testing::ValuesIn(all_subjects()), name_of_subject);

// A sequence and what its request asks for.
struct Asked {
  std::vector<int32_t> prompt, output;
  SamplingParams sampling;  // stop_token_ids: the ends
};

// By the definition, on the whole vocabulary. -infinity stands for a banned token.
std::vector<float> plainly_adjusted(std::vector<float> logits, const Asked& asked) {
  const SamplingParams& s = asked.sampling;
  const auto ban = [&](int32_t id) { logits[static_cast<size_t>(id)] = -INFINITY; };
  std::vector<bool> allowed(logits.size(), s.allowed_token_ids.empty());
  for (const int32_t id : s.allowed_token_ids) allowed[static_cast<size_t>(id)] = true;
  for (size_t id = 0; id < logits.size(); ++id)
    if (!allowed[id]) ban(static_cast<int32_t>(id));
  for (const std::vector<int32_t>& word : s.bad_word_ids) {
    const size_t others = word.size() - 1;
    if (asked.output.size() >= others &&
        std::equal(word.begin(), word.end() - 1, asked.output.end() - static_cast<std::ptrdiff_t>(others)))
      ban(word.back());
  }
  if (asked.output.size() < s.min_tokens)
    for (const int32_t id : s.stop_token_ids) ban(id);
  for (const TokenBias& bias : s.logit_bias) logits[static_cast<size_t>(bias.id)] += bias.bias;
  std::map<int32_t, int> in_both, in_output;
  for (const int32_t id : asked.prompt) ++in_both[id];
  for (const int32_t id : asked.output) ++in_both[id], ++in_output[id];
  for (const auto& [id, count] : in_both) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
  }
  for (const auto& [id, count] : in_output) {
    const float product = s.frequency_penalty * static_cast<float>(count);
    logits[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)] - product - s.presence_penalty;
  }
  return logits;
}

// Sequences on seats, their tokens in blocks of 16 in any order, as `owner` of several ranks that share contexts finds them.
class Seated {
 public:
  static constexpr int32_t block_tokens = 16, max_blocks = 20;

  Seated(Device& device, const std::vector<Asked>& all, int64_t vocabulary, int32_t owner, int32_t owners)
      : tokens_(device, DType::int32, {std::ssize(all) * max_blocks, block_tokens}),
        tables_(device, DType::int32, {std::ssize(all), max_blocks * owners}),
        lists_(device, DType::int32, {std::ssize(all), most_list_words(vocabulary)}),
        views_{ints(tokens_),
               ints(tables_),
               ints(lists_),
               block_tokens,
               max_blocks * owners,
               owner,
               owners,
               static_cast<int32_t>(most_list_words(vocabulary))} {
    std::vector<int32_t> blocks(all.size() * max_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(3));
    std::fill_n(tables_.view().as<int32_t>(), tables_.view().shape.elements(), -1);
    for (size_t seat = 0; seat < all.size(); ++seat) {
      const auto& [prompt, output, sampling] = all[seat];
      std::vector<int32_t> sequence = prompt;
      sequence.insert(sequence.end(), output.begin(), output.end());
      for (size_t at = 0; at < sequence.size(); ++at) {
        const size_t i = at / block_tokens;
        const int32_t block = blocks[seat * max_blocks + i];
        tables_.view().as<int32_t>()[(seat * max_blocks + i) * static_cast<size_t>(owners) +
                                     static_cast<size_t>(owner)] = block;
        tokens_.view().as<int32_t>()[static_cast<size_t>(block) * block_tokens + at % block_tokens] =
            sequence[at];
      }
      const std::vector<int32_t> words = words_of_lists(sampling, vocabulary);
      std::copy(words.begin(), words.end(), lists_.view().rows(static_cast<int64_t>(seat), 1).as<int32_t>());
      rows_.push_back({static_cast<int32_t>(all.size() - 1 - seat), static_cast<int32_t>(seat),
                       static_cast<int32_t>(sequence.size()), static_cast<int32_t>(prompt.size()),
                       sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty,
                       output.size() < sampling.min_tokens});
    }
  }
  // Seat s has row `count - 1 - s`.
  std::span<const AdjustedRow> rows() const { return rows_; }
  const SequenceTables& tables() const { return views_; }

 private:
  static std::span<const int32_t> ints(const Tensor& tensor) {
    return {tensor.view().as<int32_t>(), static_cast<size_t>(tensor.view().shape.elements())};
  }

  Tensor tokens_, tables_, lists_;
  SequenceTables views_;
  std::vector<AdjustedRow> rows_;
};

std::vector<Asked> random_requests(size_t count, int32_t vocabulary, std::mt19937& random) {
  const auto below = [&](int32_t limit) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(limit));
  };
  const auto ids = [&](int32_t most) {
    std::vector<int32_t> list(static_cast<size_t>(1 + below(most)));
    for (int32_t& id : list) id = below(vocabulary);
    return list;
  };
  std::vector<Asked> all;
  for (size_t i = 0; i < count; ++i) {
    Asked& asked = all.emplace_back();
    asked.prompt = ids(150);
    if (below(5) > 0) asked.output = ids(150);
    SamplingParams& s = asked.sampling;
    if (below(2)) s.repetition_penalty = below(2) ? 1.3F : 0.7F;
    if (below(2)) s.frequency_penalty = 0.37F;
    if (below(2)) s.presence_penalty = -1.1F;
    if (below(3) == 0) s.allowed_token_ids = ids(vocabulary);
    if (below(2)) s.stop_token_ids = ids(9), s.min_tokens = static_cast<uint32_t>(below(200));
    std::map<int32_t, float> biases;
    for (const int32_t id : ids(30)) biases[id] = static_cast<float>(below(20001) - 10000) / 100;
    for (const auto& [id, bias] : biases)
      if (below(2)) s.logit_bias.push_back({id, bias});
    for (int32_t word = below(6); word > 0; --word) {
      const auto others = std::min<size_t>(asked.output.size(), static_cast<size_t>(below(4)));
      s.bad_word_ids.emplace_back(asked.output.end() - static_cast<std::ptrdiff_t>(others),
                                  asked.output.end());
      if (others > 0 && below(3) == 0) s.bad_word_ids.back()[0] ^= 1;
      s.bad_word_ids.back().push_back(below(vocabulary));
    }
  }
  return all;
}

TEST_P(AdjustLogits, AreThoseOfTheDefinitionOnAnyShards) {
  std::mt19937 random(7);
  for (const auto& [vocabulary, shards] :
       std::vector<std::pair<int32_t, int32_t>>{{37, 1}, {300, 2}, {300, 3}, {9001, 1}, {9001, 4}}) {
    constexpr size_t count = 12;
    const std::vector<Asked> all = random_requests(count, vocabulary, random);
    const int64_t part = (vocabulary + shards - 1) / shards;
    std::vector<std::vector<float>> raw(count);
    for (size_t row = 0; row < count; ++row)
      for (int32_t id = 0; id < vocabulary; ++id)
        raw[row].push_back(6 * uniform(row, static_cast<uint64_t>(id)));
    for (int32_t shard = 0; shard < shards; ++shard) {
      const IndexRange ids{shard * part, std::min<int64_t>((shard + 1) * part, vocabulary)};
      const Seated seated(device(), all, vocabulary, shard % 2, 2);
      Tensor logits(device(), DType::fp32, {count + 1, part + 3});
      fill(logits, -7);
      for (size_t row = 0; row < count; ++row)
        for (int64_t id = ids.begin; id < ids.end; ++id)
          set(logits, static_cast<int64_t>(row) * (part + 3) + id - ids.begin,
              raw[row][static_cast<size_t>(id)]);
      ops().adjust_logits(logits, ids, seated.rows(), seated.tables());
      for (size_t row = 0; row < count; ++row) {
        const std::vector<float> expected = plainly_adjusted(raw[row], all[count - 1 - row]);
        for (int64_t id = ids.begin; id < ids.end; ++id) {
          const float found = get(logits, static_cast<int64_t>(row) * (part + 3) + id - ids.begin),
                      wanted = expected[static_cast<size_t>(id)];
          ASSERT_EQ(found, std::isfinite(wanted) ? wanted : lowest_logit)
              << "row " << row << ", id " << id << " of " << vocabulary;
        }
      }
      for (int64_t id = ids.size(); id < part + 3; ++id) EXPECT_EQ(get(logits, id), -7);  // padding
    }
  }
}

TEST_P(AdjustLogits, TheOrderIsMasksThenBiasThenRepetitionThenFrequencyAndPresence) {
  const std::vector<Asked> all{{{1},
                                {2, 2},
                                {.repetition_penalty = 2,
                                 .frequency_penalty = 0.5F,
                                 .presence_penalty = 0.25F,
                                 .logit_bias = {{1, -3}, {2, 4}}}},
                               {{1},
                                {},
                                {.min_tokens = 1,
                                 .stop_token_ids = {1},
                                 .repetition_penalty = 0.5F,
                                 .logit_bias = {{1, 100}, {2, 100}},
                                 .bad_word_ids = {{2}}}}};
  const Seated seated(device(), all, 4, 0, 1);
  Tensor logits(device(), DType::fp32, {2, 4});
  fill(logits, 1);
  ops().adjust_logits(logits, {0, 4}, seated.rows(), seated.tables());
  const std::vector<float> expected{
      1, lowest_logit, lowest_logit, 1, 1, (1 - 3) * 2, (1 + 4) / 2.0F - 2 * 0.5F - 0.25F, 1};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(get(logits, static_cast<int64_t>(i)), expected[i]) << i;
}

// So a row with such a logit still fails, and no other does.
TEST_P(AdjustLogits, WhatIsNotFiniteStaysAndWhatIsFiniteStaysFinite) {
  const std::vector<Asked> all{
      {{0, 1, 2, 3, 4}, {}, {.repetition_penalty = 1e38F, .allowed_token_ids = {0, 1, 2, 3}}}};
  const Seated seated(device(), all, 6, 0, 1);
  Tensor logits(device(), DType::fp32, {1, 6});
  for (const auto& [id, logit] :
       std::map<int64_t, float>{{0, -INFINITY}, {1, INFINITY}, {2, NAN}, {3, -1e30F}, {4, NAN}, {5, 2}})
    set(logits, id, logit);
  ops().adjust_logits(logits, {0, 6}, seated.rows(), seated.tables());
  EXPECT_EQ(get(logits, 0), -INFINITY);
  EXPECT_EQ(get(logits, 1), INFINITY);
  EXPECT_TRUE(std::isnan(get(logits, 2)));
  EXPECT_EQ(get(logits, 3), lowest_logit);
  EXPECT_TRUE(std::isnan(get(logits, 4)));
  EXPECT_EQ(get(logits, 5), lowest_logit);
}

TEST_P(AdjustLogits, ACandidateGetsItsRawLogitBack) {
  std::vector<Candidate> candidates{{1, 12, 5}, {2, 13, 6}, {3, 9, 7}, {4, -1, 8}};
  Tensor raw(device(), DType::fp32, {3, 8});
  for (int64_t i = 0; i < 24; ++i) set(raw, i, static_cast<float>(100 + i));
  ops().raw_logits(raw, int_tensor(device(), {3, 0, 2}), {10, 15}, candidates);
  EXPECT_EQ(candidates[0].logit, 110);
  EXPECT_EQ(candidates[1].logit, 6);
  EXPECT_EQ(candidates[2].logit, 7);
  EXPECT_EQ(candidates[3].logit, 8);
}

TEST_P(AdjustLogits, OnlyTheShardOfAGivenTokenHasItsLogit) {
  std::vector<float> given(3);
  Tensor logits(device(), DType::fp32, {3, 8});
  for (int64_t i = 0; i < 24; ++i) set(logits, i, static_cast<float>(100 + i));
  ops().logits_of(logits, int_tensor(device(), {12, 15, -1}), {10, 15}, given);
  EXPECT_EQ(given, (std::vector<float>{102, -INFINITY, -INFINITY}));
}

TEST(TokenLists, BeyondTheLimitsAreRefused) {
  EXPECT_NO_THROW(words_of_lists({.stop_token_ids = std::vector<int32_t>(max_ends)}, 64));
  EXPECT_THROW(words_of_lists({.stop_token_ids = std::vector<int32_t>(5000)}, 64), Error);
  EXPECT_THROW(words_of_lists({.bad_word_ids = {{}}}, 64), Error);
}

}  // namespace
}  // namespace maniple
