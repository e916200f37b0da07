// Components one by one: settings that the four families do not use, with results of Hugging Face tokenizers
// (components.json), and the small tokenizer checked by hand.
#include <gtest/gtest.h>

#include <kernels/support/check.hpp>
#include <runtime/tokenizer/incremental_detokenizer.hpp>

#include "small_tokenizer.hpp"

namespace maniple::testing {
namespace {

Tokenizer patched(const nlohmann::json& example) {
  auto json = read_json(family_file(example["family"], "tokenizer.json"));
  json.update(example["patch"]);
  json["model"].update(example["model"]);
  for (const auto& token : example["added_tokens"]) json["added_tokens"].push_back(token);
  return build(json);
}

TEST(Components, EncodeAndDecodeAsHuggingFaceDoes) {
  const auto examples = read_json(test_data() / "tokenizers/components.json");
  ASSERT_GT(examples.size(), 50u);
  for (const auto& example : examples) {
    SCOPED_TRACE(example["name"]);
    const auto tokenizer = patched(example);
    for (const auto& encode : example["encode"])
      EXPECT_EQ(tokenizer.encode(encode["text"].get<std::string>(), false), encode["ids"].get<Ids>())
          << encode["text"];
    for (const auto& decode : example["decode"]) {
      EXPECT_EQ(tokenizer.decode(decode["ids"].get<Ids>(), false), decode["text"]) << decode["ids"];
      EXPECT_EQ(tokenizer.decode(decode["ids"].get<Ids>(), true), decode["text_skip_special"])
          << decode["ids"];
    }
  }
}

TEST(Bpe, MergesByRankAndThenFromTheLeft) {
  const auto tokenizer = build(small_tokenizer());
  EXPECT_EQ(tokenizer.encode("abc", false), (Ids{0, 7}));  // b c merges first, so a b finds no b
  EXPECT_EQ(tokenizer.encode("abcd", false), (Ids{0, 7, 3}));
  EXPECT_EQ(tokenizer.encode("abab", false), (Ids{6, 6}));
  EXPECT_EQ(tokenizer.encode("cdcd", false), (Ids{8, 8}));
}

TEST(Bpe, TheLastOfTwoEqualMergesCounts) {
  auto json = small_tokenizer();
  json["model"]["merges"].push_back({"b", "c"});
  EXPECT_EQ(build(json).encode("abc", false), (Ids{9}));
}

TEST(Bpe, ReadsMergesOfOlderFiles) {
  auto json = small_tokenizer();
  json["model"]["merges"] = {"#version: 0.2", "b c", "a b", "ab c", "c d"};
  json["model"].erase("type");
  EXPECT_EQ(build(json).encode("abcab", false), (Ids{0, 7, 6}));
}

TEST(Bpe, AMissingUnknownTokenIsAnErrorOnlyWhereItIsNeeded) {
  auto json = small_tokenizer();
  json["model"]["unk_token"] = "<unk>";
  const auto tokenizer = build(json);
  EXPECT_EQ(tokenizer.encode("ab", false), (Ids{6}));
  EXPECT_THROW(tokenizer.encode("z", false), Error);
}

TEST(Template, SurroundsTheTextOnRequest) {
  auto json = small_tokenizer();
  const nlohmann::json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const nlohmann::json token = {{"SpecialToken", {{"id", "T"}, {"type_id", 0}}}};
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {token, token, text, token}},
      {"pair", nlohmann::json::array()},
      {"special_tokens", {{"T", {{"id", "T"}, {"ids", {3, 5}}, {"tokens", {"d", "_"}}}}}}};
  const auto tokenizer = build(json);
  EXPECT_EQ(tokenizer.encode("a", true), (Ids{3, 5, 3, 5, 0, 3, 5}));
  EXPECT_EQ(tokenizer.encode("a", false), (Ids{0}));
  EXPECT_EQ(tokenizer.encode("", true), (Ids{3, 5, 3, 5, 3, 5}));
}

TEST(AddedTokens, TheLongestAtTheLeftmostPlaceIsTaken) {
  auto json = small_tokenizer();
  json["added_tokens"] = {added_token("<x", 10), added_token("<x>y", 11), added_token("x>", 12)};
  const auto tokenizer = build(json);
  EXPECT_EQ(tokenizer.encode("a<x>yb", false), (Ids{0, 11, 1}));
  EXPECT_EQ(tokenizer.encode("<x<x>x>", false), (Ids{10, 10, 12}));
  EXPECT_EQ(tokenizer.vocab_size(), 13u);
}

TEST(Encode, RefusesBrokenUtf8WithItsPlace) {
  const auto tokenizer = build(small_tokenizer());
  try {
    tokenizer.encode("ab\xC3", false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    EXPECT_STREQ(error.what(), "tokenizer: invalid UTF-8 at byte 2");
  }
}

TEST(IncrementalDetokenizer, HoldsBackARunOfByteTokens) {
  const auto tokenizer = family_tokenizer("mistral-v1-style");
  const auto byte = [&](const char* name) { return *tokenizer.token_id(name); };
  IncrementalDetokenizer detokenizer(tokenizer, false);
  detokenizer.push(*tokenizer.token_id("a"));
  for (const char* name : {"<0xE4>", "<0xBD>", "<0xA0>"}) EXPECT_EQ(detokenizer.push(byte(name)), "");
  EXPECT_EQ(detokenizer.push(*tokenizer.token_id("b")), "你b");
  for (const char* name : {"<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>"})
    EXPECT_EQ(detokenizer.push(byte(name)), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(IncrementalDetokenizer, HoldsBackHalfACharacter) {
  const auto tokenizer = family_tokenizer("qwen-style");
  IncrementalDetokenizer detokenizer(tokenizer, false);
  EXPECT_EQ(detokenizer.push(*tokenizer.token_id("Ã")), "");  // the byte C3 of é
  EXPECT_EQ(detokenizer.push(*tokenizer.token_id("©")), "é");
  EXPECT_EQ(detokenizer.push(*tokenizer.token_id("Ã")), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
}

}  // namespace
}  // namespace maniple::testing
