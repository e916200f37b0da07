#include <gtest/gtest.h>

#include <kernels/support/check.hpp>
#include <random>
#include <runtime/tokenizer/stop_strings.hpp>

namespace maniple {
namespace {

struct Outcome {
  std::string text, matched;
  bool operator==(const Outcome&) const = default;
};

Outcome feed(const std::vector<std::string>& stops, const std::vector<std::string>& parts) {
  StopStringMatcher matcher(stops);
  std::string text;
  for (const auto& part : parts) text += matcher.push(part);
  return {text + matcher.finish(), matcher.matched()};
}

// The definition, by trial: the shortest prefix of the text that ends with a stop string, and the longest
// such stop string.
Outcome expected(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t length = 1; length <= text.size(); ++length) {
    std::string longest;
    for (const auto& stop : stops)
      if (text.substr(0, length).ends_with(stop) && stop.size() > longest.size()) longest = stop;
    if (!longest.empty()) return {text.substr(0, length - longest.size()), longest};
  }
  return {text, ""};
}

TEST(StopStrings, TextWithoutThemPassesAtOnce) {
  StopStringMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("hello"), "hello");
  EXPECT_EQ(matcher.push("xE"), "x");  // E may begin END
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("e"), "ENe");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopStrings, CutTheTextBeforeThemAndAllThatFollows) {
  StopStringMatcher matcher({"\n\n", "User:"});
  EXPECT_EQ(matcher.push("answer Us"), "answer ");
  EXPECT_EQ(matcher.push("er: more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "User:");
  EXPECT_EQ(matcher.push("\n\n"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopStrings, HeldBackTextIsReleasedAtTheEnd) {
  StopStringMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("the EN"), "the ");
  EXPECT_EQ(matcher.finish(), "EN");
}

TEST(StopStrings, OverlapWithThemselves) {
  EXPECT_EQ(feed({"aab"}, {"aa", "aa", "b", "c"}), (Outcome{"aa", "aab"}));
  EXPECT_EQ(feed({"abab"}, {"aba", "abab"}), (Outcome{"ab"
                                                      "a",
                                                      "abab"}));
}

TEST(StopStrings, MayBeOfManyBytesACharacter) {
  StopStringMatcher matcher({"世界"});
  EXPECT_EQ(matcher.push("你好世"), "你好");
  EXPECT_EQ(matcher.push("人"), "世人");
  EXPECT_EQ(matcher.push("世"), "");
  EXPECT_EQ(matcher.push("界"), "");
  EXPECT_EQ(matcher.matched(), "世界");
}

TEST(StopStrings, DoNotDependOnHowTheTextIsCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    const auto word = [&](size_t longest) {
      std::string text;
      for (size_t n = 1 + random() % longest; n > 0; --n) text += static_cast<char>('a' + random() % 2);
      return text;
    };
    std::vector<std::string> stops(random() % 4), parts(random() % 6);
    for (auto& stop : stops) stop = word(6);
    std::string text;
    for (auto& part : parts) text += part = word(5);
    ASSERT_EQ(feed(stops, parts), expected(stops, text)) << text;
  }
}

TEST(StopStrings, MustNotBeEmpty) { EXPECT_THROW(StopStringMatcher({"a", ""}), Error); }

}  // namespace
}  // namespace maniple
