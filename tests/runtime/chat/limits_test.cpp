// Templates come from the internet. None may run for ever, fill the memory or overflow the stack.
#include "chat_testing.hpp"

namespace maniple::testing {
namespace {

std::string repeated(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

std::string refusal(const std::string& source) {
  return refusal_of([&] { render(source); });
}

TEST(ChatLimits, NestedLoopsEnd) {
  const std::string loop = "{% for x in range(100000) %}";
  EXPECT_NE(refusal(loop + loop + loop + repeated("{% endfor %}", 3)).find("too much work"),
            std::string::npos);
}

TEST(ChatLimits, DoublingTextsAndListsEnds) {
  const std::string grow =
      "{% set n = namespace(x={}) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}";
  for (const char* start : {"'ab'", "[1]"})
    EXPECT_NE(refusal(std::string(grow).replace(grow.find("{}"), 2, start)), "");
  EXPECT_NE(refusal("{{ 'ab' * 9223372036854775807 }}").find("at most"), std::string::npos);
  EXPECT_NE(refusal("{{ ('a' * 60000000) | replace('', 'a' * 60000000) }}").find("at most"),
            std::string::npos);
}

TEST(ChatLimits, DeepRecursionEnds) {
  EXPECT_NE(refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("nested deeper"),
            std::string::npos);
  EXPECT_NE(refusal("{{ " + repeated("(", 100'000) + repeated(")", 100'000) + " }}").find("nested deeper"),
            std::string::npos);
  EXPECT_NE(refusal("{{ " + repeated("not ", 100'000) + "1 }}").find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal(repeated("{% if 1 %}", 100'000)).find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal("{% if 1 %}" + repeated("{% elif 1 %}", 100'000)).find("nested deeper"),
            std::string::npos);
  EXPECT_NE(refusal("{{ 1" + repeated(" + 1", 100'000) + " }}").find("operations"), std::string::npos);
  EXPECT_NE(refusal("{{ a" + repeated(".b", 100'000) + " }}").find("operations"), std::string::npos);
}

TEST(ChatLimits, ValuesInEachOtherEnd) {
  const std::string nest =
      "{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}";
  EXPECT_NE(refusal(nest).find("nested deeper"), std::string::npos);
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.me = [n] %}{{ n.me[0].me | length }}"), "1");
}

TEST(ChatLimits, ALongConversationStaysWithinThem) {
  nlohmann::ordered_json variables;
  for (int i = 0; i < 5000; ++i)
    variables["messages"].push_back(
        {{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(2000, 'a')}});
  const std::string loop =
      "{% for m in messages %}{% if m.role == 'user' or loop.last %}{{ m.role + ': ' + m.content | trim }}{% "
      "else %}"
      "{{ '-' ~ m.content }}{% endif %}\n{% endfor %}";
  EXPECT_GT(render(loop, variables).size(), 10'000'000u);
}

}  // namespace
}  // namespace maniple::testing
