#include <kernels/support/check.hpp>
#include <launch/chat_prompt.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace maniple {
namespace {

using nlohmann::ordered_json;

const ChatTemplate all_variables = ChatTemplate::from_text(
    "{{ messages | tojson }} {{ tools | tojson }} {{ documents | tojson }} {{ add_generation_prompt }}"
    " {{ enable_thinking }} {{ effort }}");

std::string prompt(const std::string& request) {
  return chat_prompt(all_variables, ordered_json::parse(request), 0);
}

std::string refusal(const std::string& request) {
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

TEST(ChatPrompt, RefusesWhatIsMistypedOrAsksForAnotherPrompt) {
  EXPECT_EQ(refusal("{}"), "messages is missing or empty");
  EXPECT_EQ(refusal(R"({"messages": []})"), "messages is missing or empty");
  EXPECT_EQ(refusal(R"({"messages": "hi"})"), "messages must be a list of messages");
  EXPECT_EQ(refusal(R"({"messages": [1], "tools": {}})"), "tools must be a list");
  EXPECT_EQ(refusal(R"({"messages": [1], "enable_thinking": 1})"), "enable_thinking must be true or false");
  EXPECT_EQ(refusal(R"({"messages": [1], "chat_template_kwargs": []})"),
            "chat_template_kwargs must be an object");
  EXPECT_NE(refusal(R"({"messages": [1], "continue_final_message": true})").find("is not supported"),
            std::string::npos);
  EXPECT_NE(refusal(R"([])").find("missing"), std::string::npos);
}

}  // namespace
}  // namespace maniple
