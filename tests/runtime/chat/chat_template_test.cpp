#include <filesystem>
#include <fstream>
#include <thread>

#include "chat_testing.hpp"

namespace maniple::testing {
namespace {

using nlohmann::ordered_json;

const ordered_json no_messages = {{"messages", ordered_json::array()}};

class ModelDirectory : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(path); }
  void TearDown() override { std::filesystem::remove_all(path); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(path / name) << text; }
  std::string rendered(const ordered_json& variables = no_messages) const {
    return ChatTemplate::load(path).render(variables, golden_time);
  }

  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("maniple_chat_test_" + std::to_string(::getpid()));
};

TEST_F(ModelDirectory, TheTemplateAndTheSpecialTokensComeFromTokenizerConfig) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": null,
      "chat_template": "{{ bos_token }}{{ eos_token }}{{ unk_token is defined }}{{ messages | length }}"})");
  EXPECT_EQ(rendered(), "<s></s>False0");
  EXPECT_EQ(rendered({{"messages", {1, 2}}, {"bos_token", "mine"}}), "mine</s>False2");
}

TEST_F(ModelDirectory, ToolsDocumentsAndTheGenerationPromptAreAlwaysDefined) {
  write("chat_template.jinja",
        "{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ enable_thinking is defined }}");
  EXPECT_EQ(rendered(), "NoneNoneFalseFalse");
  EXPECT_EQ(
      rendered(
          {{"messages", ordered_json::array()}, {"enable_thinking", false}, {"add_generation_prompt", true}}),
      "NoneNoneTrueTrue");
}

TEST_F(ModelDirectory, AFileOfItsOwnComesFirstAndChatTemplateJsonLast) {
  write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(rendered(), "json");
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(rendered(), "config");
  write("chat_template.jinja", "file\n");
  EXPECT_EQ(rendered(), "file");
}

TEST_F(ModelDirectory, OfSeveralTemplatesToolUseServesRequestsWithTools) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "documents"}]})");
  EXPECT_EQ(rendered(), "plain");
  EXPECT_EQ(rendered({{"messages", ordered_json::array()}, {"tools", nullptr}}), "plain");
  EXPECT_EQ(rendered({{"messages", ordered_json::array()}, {"tools", ordered_json::array()}}), "tools");
}

TEST_F(ModelDirectory, FurtherTemplatesHaveFilesOfTheirOwn) {
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  std::filesystem::create_directories(path / "additional_chat_templates");
  write("additional_chat_templates/rag.jinja", "documents");
  EXPECT_NE(refusal_of([&] { rendered(); }).find("holds no chat template \"default\""), std::string::npos);
  write("chat_template.jinja", "<|im_start|>{{ eos_token }}");
  write("special_tokens_map.json", R"({"eos_token": {"content": "<e>", "lstrip": false}})");
  write("additional_chat_templates/tool_use.jinja", "tools");
  const ordered_json with_tools = {{"messages", ordered_json::array()}, {"tools", ordered_json::array()}};
  EXPECT_EQ(rendered(), "<|im_start|><e>");
  EXPECT_EQ(rendered(with_tools), "tools");
  EXPECT_EQ(ChatTemplate::load(path, "rag").render(with_tools, golden_time), "documents");
  EXPECT_EQ(ChatTemplate::load(path, "default").render(with_tools, golden_time), "<|im_start|><e>");
  EXPECT_NE(refusal_of([&] { ChatTemplate::load(path, "rug"); }).find("\"rug\""), std::string::npos);
}

// A page begins with <!doctype, <html or <?xml; a template with a token such as <|im_start|>.
TEST_F(ModelDirectory, ATemplateThatIsAWebPageIsRefused) {
  for (const char* page :
       {"<!DOCTYPE html><html>", "\xEF\xBB\xBF <HTML lang=\"en\">", "\n<?xml version=\"1.0\"?>"}) {
    write("chat_template.jinja", page);
    EXPECT_NE(refusal_of([&] { rendered(); }).find("is a web page"), std::string::npos) << page;
  }
  for (const char* text : {"<s>", "<", "<!", "<|user|>", "<?"}) {
    write("chat_template.jinja", text);
    EXPECT_EQ(rendered(), text);
  }
  write("tokenizer_config.json", " <script>");
  EXPECT_NE(refusal_of([&] { rendered(); }).find("tokenizer_config.json is a web page"), std::string::npos);
}

TEST_F(ModelDirectory, WithoutATemplateTheDirectoryIsRefused) {
  EXPECT_NE(refusal_of([&] { rendered(); }).find("holds no chat template"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_NE(refusal_of([&] { rendered(); }).find("holds no chat template"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_NE(refusal_of([&] { rendered(); }).find("chat_template is 7"), std::string::npos);
}

TEST(ChatTemplateErrors, NameTheLineAndTheUnknown) {
  const auto message = [](const std::string& source) { return refusal_of([&] { render(source); }); };
  EXPECT_EQ(message("a\n{% include 'x' %}"), "chat template, line 2: the tag include is not supported");
  EXPECT_EQ(message("a\n\n{{ messages | xmlattr }}"),
            "chat template, line 3: the filter xmlattr is not supported");
  EXPECT_EQ(message("{{ 1 is prime }}"), "chat template, line 1: the test prime is not supported");
  EXPECT_EQ(message("{{ x }}\n{{ x.y }}"), "chat template, line 2: x is undefined");
  EXPECT_EQ(message("{{ 'a'.zfill(3) }}"),
            "chat template, line 1: str has no attribute zfill, or none that is supported");
  EXPECT_EQ(message("{% macro m() %}\n{{ raise_exception('no') }}{% endmacro %}\n\n{{ m() }}"),
            "chat template, line 2: refused by the template: no");
  EXPECT_EQ(message("{% macro m() %}\n{% endmacro %}\n\n{{ m() + 1 }}"),
            "chat template, line 4: + does not work between str and int");
  EXPECT_EQ(message("{{ 9223372036854775807 + 1 }}"),
            "chat template, line 1: 9223372036854775807 + 1 is beyond 64 bits");
  EXPECT_EQ(message("{{ '%c' % 1 }}"), "chat template, line 1: the format %c is not supported");
  EXPECT_EQ(message("{{ range }}"), "chat template, line 1: a value of type function cannot be printed");
  EXPECT_EQ(message("\xFF"), "the chat template is not valid UTF-8");
}

TEST(ChatTemplateErrors, AnUnknownFilterInABranchThatDoesNotRunHarmsNobody) {
  EXPECT_EQ(render("{% if tools %}{{ tools | from_json }}{% endif %}x"), "x");
}

TEST(ChatTemplateNumbers, AreAsTheJsonGivesThem) {
  const auto variables =
      ordered_json::parse(R"({"messages": [1, 1.0, -0.0, 1e20, 0.1, 9223372036854775807]})");
  EXPECT_EQ(render("{{ messages | tojson }}", variables), "[1, 1.0, -0.0, 1e+20, 0.1, 9223372036854775807]");
  const auto large = ordered_json::parse(R"({"messages": [9223372036854775808]})");
  EXPECT_NE(refusal_of([&] { render("", large); }).find("larger than 2^63 - 1"), std::string::npos);
}

TEST(ChatTemplateNumbers, KeepTheSignOfZero) {
  EXPECT_EQ(render("{{ -0.0 }} {{ +(-0.0) }} {{ - 0 }} {{ -0.5 }} {{ -true }}"), "-0.0 -0.0 0 -0.5 -1");
}

TEST(ChatTemplateMacros, ShowWhatJinjaShowsOfThem) {
  EXPECT_EQ(render("{% macro m(a, b=1) %}{{ a }}{% endmacro %}"
                   "{{ m.name }} {{ m.arguments }} {{ m.catch_kwargs }} {{ m.catch_varargs }} {{ m.caller }} "
                   "[{{ m.none }}]"),
            "m ('a', 'b') False False False []");
  EXPECT_EQ(
      render("{% macro m() %}{% if false %}{{ varargs }}{% endif %}{% endmacro %}{{ m.catch_varargs }}"),
      "True");
}

TEST(ChatTemplateThreads, ManyShareOne) {
  const auto shared = ChatTemplate::from_text("{% for m in messages %}{{ loop.index }}{{ m }}{% endfor %}");
  std::vector<std::string> prompts(4);
  std::vector<std::thread> threads;
  for (auto& prompt : prompts)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) prompt = shared.render({{"messages", {"a", "b"}}}, golden_time);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& prompt : prompts) EXPECT_EQ(prompt, "1a2b");
}

}  // namespace
}  // namespace maniple::testing
