// Offsets of tokens in their text, by hand and against the texts of all beginnings.
#include <gtest/gtest.h>

#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/token_offsets.hpp>

#include <algorithm>

#include "small_tokenizer.hpp"

namespace maniple::testing {
namespace {

using Offsets = std::vector<size_t>;

Ids ids_of(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  Ids ids;
  for (const std::string& token : tokens) ids.push_back(tokenizer.token_id(token).value());
  return ids;
}

TEST(TokenOffsets, OfPartsOfACharacterAreThoseOfTheCharacter) {
  const Tokenizer qwen = family_tokenizer("qwen-style");  // Ã and © are the bytes C3 and A9
  const auto of = [&](const std::vector<std::string>& tokens) {
    return token_offsets(qwen, ids_of(qwen, tokens), false);
  };
  EXPECT_EQ(of({}), Offsets{});
  EXPECT_EQ(of({"a", "Ã", "©", "b"}), (Offsets{0, 1, 1, 2}));
  EXPECT_EQ(of({"Ã", "b"}), (Offsets{0, 1})) << "a broken character is one too";
  EXPECT_EQ(of({"Ã", "Ã", "©", "Ã"}), (Offsets{0, 1, 1, 2}));
}

TEST(TokenOffsets, OfARunOfByteTokensAreThoseOfItsCharacters) {
  const Tokenizer mistral = family_tokenizer("mistral-v1-style");
  const auto of = [&](const std::vector<std::string>& tokens) {
    return token_offsets(mistral, ids_of(mistral, tokens), false);
  };
  const std::vector<std::string> you_e = {"<0xE4>", "<0xBD>", "<0xA0>", "<0xC3>", "<0xA9>"};
  std::vector<std::string> tokens = {"a"};
  tokens.insert(tokens.end(), you_e.begin(), you_e.end());
  EXPECT_EQ(of(tokens), (Offsets{0, 1, 1, 1, 2, 2})) << "that ends the text";
  tokens.insert(tokens.end(), {"b", "a"});
  EXPECT_EQ(of(tokens), (Offsets{0, 1, 1, 1, 2, 2, 3, 4}));
  EXPECT_EQ(of({"<0xE4>", "<0xFF>", "b"}), (Offsets{0, 1, 2}))
      << "a run that is no text is a character a byte";
}

TEST(TokenOffsets, OfTokensWithoutTextAreWhereTheNextTextBegins) {
  auto json = small_tokenizer();
  json["added_tokens"] = {added_token("<x>", 10)};
  const Tokenizer tokenizer = build(json);
  EXPECT_EQ(token_offsets(tokenizer, Ids{10, 6, 10, 99, 0, 10}, true), (Offsets{0, 0, 2, 2, 2, 3}));
  EXPECT_EQ(token_offsets(tokenizer, Ids{10, 6, 10, 99, 0, 10}, false), (Offsets{0, 3, 5, 8, 8, 9}));
}

// Where the text of the ids before each one ends within the whole text, for texts without broken characters.
Offsets offsets_by_beginnings(const Tokenizer& tokenizer, const Ids& ids, bool skip) {
  const std::string whole = tokenizer.decode(ids, skip);
  Offsets offsets;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string before = tokenizer.decode(std::span(ids).first(i), skip);
    auto same = static_cast<size_t>(std::ranges::mismatch(whole, before).in1 - whole.begin());
    while (same < whole.size() && continues_character(whole[same])) --same;
    const size_t offset = character_count(whole.substr(0, same));
    offsets.push_back(std::max(offset, i == 0 ? 0 : offsets.back()));
  }
  return offsets;
}

TEST(TokenOffsets, AreWhereTheTextOfTheIdsBeforeEnds) {
  const std::vector<std::string> texts = {"Once upon a time.",
                                          " ü, ñ and ß",
                                          "你好，世界",
                                          "😀👍🏽 ok 😀",
                                          "e\u0301\u0302 \u200d",
                                          "a\n\n  b\t",
                                          ""};
  for (const std::string& family : families) {
    const Tokenizer tokenizer = family_tokenizer(family);
    for (const std::string& text : texts)
      for (const bool skip : {false, true}) {
        const Ids ids = tokenizer.encode(text, true);
        EXPECT_EQ(token_offsets(tokenizer, ids, skip), offsets_by_beginnings(tokenizer, ids, skip))
            << family << ": " << text;
      }
  }
}

TEST(TokenOffsets, TakeTimeThatGrowsWithTheTextAlone) {
  const Tokenizer mistral = family_tokenizer("mistral-v1-style");
  Ids ids;
  for (int i = 0; i < 100'000; ++i) ids.push_back(*mistral.token_id(i % 2 == 0 ? "<0xC3>" : "<0xA9>"));
  const Offsets offsets = token_offsets(mistral, ids, false);
  ASSERT_EQ(offsets.size(), ids.size());
  EXPECT_EQ(offsets.back(), 49'999U);
}

}  // namespace
}  // namespace maniple::testing
