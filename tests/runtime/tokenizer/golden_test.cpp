// Cases computed by Hugging Face tokenizers for five families of tokenizers and by tiktoken for a sixth, and the incremental detokeniser on them.
#include <gtest/gtest.h>

#include <random>
#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/incremental_detokenizer.hpp>
#include <thread>

#include "small_tokenizer.hpp"

namespace maniple::testing {
namespace {

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  Tokenizer tokenizer = family_tokenizer(GetParam());
  nlohmann::json cases = read_json(family_file(GetParam(), "cases.json"));
};

std::string test_name(const ::testing::TestParamInfo<std::string>& family) {
  std::string name = family.param;
  std::erase(name, '-');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(families), test_name);

TEST_P(Golden, EncodesEveryTextAsHuggingFaceDoes) {
  ASSERT_GT(cases["encode"].size(), 50u);
  for (const auto& example : cases["encode"]) {
    const auto text = example["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, false), example["ids"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer.encode(text, true), example["ids_with_special"].get<Ids>()) << text;
  }
}

TEST_P(Golden, DecodesEncodedTextsAsHuggingFaceDoes) {
  for (const auto& example : cases["encode"]) {
    EXPECT_EQ(tokenizer.decode(example["ids"].get<Ids>(), false), example["decoded"]) << example["text"];
    EXPECT_EQ(tokenizer.decode(example["ids_with_special"].get<Ids>(), true), example["decoded_skip_special"])
        << example["text"];
  }
}

TEST_P(Golden, DecodesRandomIdsAsHuggingFaceDoes) {
  ASSERT_GT(cases["decode"].size(), 20u);
  for (const auto& example : cases["decode"]) {
    const auto ids = example["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.decode(ids, false), example["decoded"]) << example["ids"];
    EXPECT_EQ(tokenizer.decode(ids, true), example["decoded_skip_special"]) << example["ids"];
  }
}

std::string decode_step_by_step(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  IncrementalDetokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const auto id : ids) {
    const auto part = detokenizer.push(id);
    EXPECT_EQ(first_invalid_utf8(part), std::string::npos);
    text += part;
  }
  return text + detokenizer.finish();
}

TEST_P(Golden, IncrementalTextJoinsToTheGoldenText) {
  for (const auto& example : cases["decode"]) {
    const auto ids = example["ids"].get<Ids>();
    EXPECT_EQ(decode_step_by_step(tokenizer, ids, false), example["decoded"]) << example["ids"];
    EXPECT_EQ(decode_step_by_step(tokenizer, ids, true), example["decoded_skip_special"]) << example["ids"];
  }
}

TEST_P(Golden, EveryPrefixOfIncrementalTextIsAPrefixOfTheDecodedText) {
  std::mt19937 random(17);
  for (int round = 0; round < 300; ++round) {
    Ids ids(random() % 20);
    for (auto& id : ids)
      id = static_cast<int32_t>(random() % (random() % 2 ? 260 : tokenizer.vocab_size() + 5));
    const auto whole = tokenizer.decode(ids, false);
    IncrementalDetokenizer detokenizer(tokenizer, false);
    std::string text;
    for (const auto id : ids) {
      text += detokenizer.push(id);
      ASSERT_TRUE(whole.starts_with(text));
    }
    ASSERT_EQ(text + detokenizer.finish(), whole);
  }
}

TEST_P(Golden, OrdinaryTextComesOutOfTheIncrementalDetokenizerAtOnce) {
  IncrementalDetokenizer detokenizer(tokenizer, true);
  std::string text;
  for (const auto id : tokenizer.encode("To be, or not to be", true)) text += detokenizer.push(id);
  EXPECT_EQ(text, "To be, or not to be");  // before finish()
}

TEST_P(Golden, ManyThreadsShareOneTokenizer) {
  const auto encode_all = [&] {
    std::vector<Ids> all;
    for (const auto& example : cases["encode"])
      all.push_back(tokenizer.encode(example["text"].get<std::string>(), true));
    return all;
  };
  const auto expected = encode_all();
  std::vector<std::vector<Ids>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = encode_all(); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST_P(Golden, EveryTokenHasItsIdBack) {
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto text = tokenizer.token_text(static_cast<int32_t>(id));
    ASSERT_TRUE(text.has_value()) << id;
    EXPECT_EQ(tokenizer.token_id(*text), static_cast<int32_t>(id));
  }
  EXPECT_EQ(tokenizer.token_text(-1), std::nullopt);
  EXPECT_EQ(tokenizer.token_text(static_cast<int32_t>(tokenizer.vocab_size())), std::nullopt);
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
}

TEST(TokenizerOfQwen, KnowsItsSpecialTokens) {
  const auto tokenizer = family_tokenizer("qwen-style");
  EXPECT_EQ(tokenizer.token_id("<|im_end|>"), 2047);
  EXPECT_TRUE(tokenizer.is_special(2047));
  EXPECT_FALSE(tokenizer.is_special(100));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_EQ(tokenizer.vocab_size(), 2048u);
}

TEST(TokenizerOfMistral, EncodesAMegabyteWithoutSpacesOrLineBreaks) {
  const auto tokenizer = family_tokenizer("mistral-v1-style");  // one piece: quadratic work would take hours
  std::string text;
  while (text.size() < 1'000'000) text += "tobeornottobe";
  const auto ids = tokenizer.encode(text, false);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer.decode(ids, false), text);
}

}  // namespace
}  // namespace maniple::testing
