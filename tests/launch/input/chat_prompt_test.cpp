#include <kernels/support/check.hpp>
#include <launch/input/chat_prompt.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace maniple {
namespace {

using nlohmann::ordered_json;

const ChatTemplate all_variables = ChatTemplate::from_text(
    "{{ messages | tojson }} {{ tools | tojson }} {{ documents | tojson }} {{ add_generation_prompt }}"
    " {{ enable_thinking }} {{ effort }}{{ reasoning_effort }}");

std::string prompt(const std::string& request) {
  return chat_prompt(all_variables, ordered_json::parse(request), 0);
}

std::string chat_refusal(const std::string& request) {
  try {
    return "gave " + prompt(request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error.what();
  }
}

TEST(ChatPrompt, AsksForAnAnswerUnlessToldOtherwise) {
  EXPECT_EQ(prompt(R"({"messages": [1]})"), "[1] null null True  ");
  EXPECT_EQ(prompt(R"({"messages": [1], "add_generation_prompt": false})"), "[1] null null False  ");
  EXPECT_EQ(prompt(R"({"messages": [1], "chat_template_kwargs": {"add_generation_prompt": false}})"),
            "[1] null null False  ");
}

TEST(ChatPrompt, GivesTheTemplateItsVariablesWithKeysInTheirOrder) {
  EXPECT_EQ(
      prompt(R"({"model": "m", "messages": [{"role": "user", "content": "é"}], "tools": [{"z": 1, "a": 2}],
                       "documents": [], "enable_thinking": false, "chat_template_kwargs": {"effort": "low"},
                       "temperature": 0.5, "functions": null})"),
      R"([{"role": "user", "content": "é"}] [{"z": 1, "a": 2}] [] True False low)");
}

TEST(ChatPrompt, ShowsTheTemplateTheEffortThatIsAskedFor) {
  EXPECT_TRUE(prompt(R"({"messages": [1], "reasoning_effort": "high"})").ends_with("True  high"));
  EXPECT_TRUE(
      prompt(R"({"messages": [1], "chat_template_kwargs": {"reasoning_effort": "low"}})").ends_with("low"));
  EXPECT_TRUE(
      prompt(
          R"({"messages": [1], "reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "low"}})")
          .ends_with("high"));
  EXPECT_TRUE(prompt(R"({"messages": [1], "reasoning_effort": null})").ends_with("True  "))
      << "the template's own";
}

TEST(ChatPrompt, ShowsNoNullFieldAndAThoughtUnderTheNamesThatTemplatesRead) {
  const auto message_of = [](const std::string& fields) {
    const std::string request = R"({"messages": [{"role": "assistant")" + fields + "}]}";
    return chat_prompt(ChatTemplate::from_text("{{ messages[0] | tojson }}"), ordered_json::parse(request),
                       0);
  };
  EXPECT_EQ(message_of(R"(, "content": null, "tool_calls": null)"), R"({"role": "assistant"})");
  EXPECT_EQ(message_of(R"(, "reasoning": "a")"),
            R"({"thinking": "a", "role": "assistant", "reasoning": "a", "reasoning_content": "a"})");
  EXPECT_EQ(message_of(R"(, "thinking": "a", "reasoning_content": null)"),
            R"({"thinking": "a", "role": "assistant", "reasoning_content": "a"})");
  EXPECT_EQ(message_of(R"(, "thinking": "a", "reasoning_content": "b", "content": "c")"),
            R"({"thinking": "a", "role": "assistant", "reasoning_content": "b", "content": "c"})");
}

const std::string parts = R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])";

std::string prompt_of_parts(const std::string& source, const std::string& role = "user") {
  const std::string request = R"({"messages": [{"role": ")" + role + R"(", "content": )" + parts + "}]}";
  return chat_prompt(ChatTemplate::from_text(source), ordered_json::parse(request), 0);
}

TEST(ChatPrompt, JoinsTextPartsWhereTheTemplateWantsOneText) {
  EXPECT_EQ(prompt_of_parts("{% for m in messages %}<{{ m.content }}>{% endfor %}"), "<a\nb>");
  EXPECT_EQ(prompt_of_parts("{{ messages[0].content + '.' }}"), "a\nb.");
  EXPECT_EQ(prompt_of_parts("{% for m in messages %}{{ m.content | tojson }}{% endfor %}"), R"("a\nb")");
  EXPECT_EQ(prompt_of_parts("{{ messages[0].content if messages[0].content is string else '' }}"), "a\nb");
}

TEST(ChatPrompt, GivesPartsToATemplateThatReadsThemInMessagesOfThatRole) {
  const std::string reads_parts =
      "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.content is string %}"
      "{{ m.content }}{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(prompt_of_parts(reads_parts), "[a][b]");
  EXPECT_EQ(prompt_of_parts(reads_parts, "assistant"), "[a][b]");
  EXPECT_EQ(prompt_of_parts(reads_parts, "tool"), "[a][b]");
  EXPECT_EQ(prompt_of_parts(reads_parts, "system"), "a\nb");
}

TEST(ChatPrompt, RefusesWhatIsMistypedOrAsksForAnotherPrompt) {
  EXPECT_EQ(chat_refusal("{}"), "messages is missing or empty");
  EXPECT_EQ(chat_refusal(R"({"messages": []})"), "messages is missing or empty");
  EXPECT_EQ(chat_refusal(R"({"messages": "hi"})"), "messages must be a list of messages");
  EXPECT_EQ(chat_refusal(R"({"messages": [1], "tools": {}})"), "tools must be a list");
  EXPECT_EQ(chat_refusal(R"({"messages": [1], "enable_thinking": 1})"),
            "enable_thinking must be true or false");
  EXPECT_EQ(chat_refusal(R"({"messages": [1], "chat_template_kwargs": []})"),
            "chat_template_kwargs must be an object");
  EXPECT_NE(chat_refusal(R"({"messages": [1], "continue_final_message": true})").find("is not supported"),
            std::string::npos);
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})"),
            "content has a part of type \"input_audio\"; supported: text");
  EXPECT_NE(chat_refusal(R"([])").find("missing"), std::string::npos);
}

}  // namespace
}  // namespace maniple
