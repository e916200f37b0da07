// The results of jinja2 for templates and for single features of the language (tests/data/chat/README.md).
#include <fstream>
#include <sstream>

#include "chat_testing.hpp"

namespace maniple::testing {
namespace {

using nlohmann::ordered_json;

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(MANIPLE_TEST_DATA "/chat/") + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A golden case: a text, a message that the template raises, or an error of Jinja's.
void expect_golden(const ordered_json& golden, const std::string& source, const ordered_json& variables) {
  std::string text;
  const std::string refusal = refusal_of([&] { text = render(source, variables); });
  if (golden.contains("text")) {
    EXPECT_EQ(refusal, "");
    EXPECT_EQ(text, golden["text"]);
  } else if (golden.contains("refusal")) {
    EXPECT_TRUE(refusal.ends_with("refused by the template: " + golden["refusal"].get<std::string>()))
        << refusal;
  } else {
    EXPECT_NE(refusal, "") << "gave " << text;
  }
}

// strftime_now shows local time.
class ChatGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

TEST_F(ChatGolden, EveryTemplateRendersEveryConversationAsJinjaDoes) {
  const ordered_json golden = ordered_json::parse(read_file("golden.json"));
  ASSERT_GT(golden["cases"].size(), 200u);
  for (const ordered_json& each : golden["cases"]) {
    SCOPED_TRACE(each["template"].dump() + each["conversation"].dump() + each["option"].dump());
    ordered_json variables = golden["tokens"];
    variables.update(golden["options"][each["option"].get<size_t>()]);
    variables["messages"] = golden["conversations"][each["conversation"].get<std::string>()];
    expect_golden(each, read_file("templates/" + each["template"].get<std::string>()), variables);
  }
}

TEST_F(ChatGolden, EveryPieceOfTheLanguageMeansWhatItMeansInJinja) {
  const ordered_json golden = ordered_json::parse(read_file("snippets.json"));
  ASSERT_GT(golden["cases"].size(), 400u);
  for (const ordered_json& each : golden["cases"]) {
    SCOPED_TRACE(each["template"].dump());
    expect_golden(each, each["template"], golden["variables"]);
  }
}

}  // namespace
}  // namespace maniple::testing
