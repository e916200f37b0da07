#include <runtime/tokenizer/reasoning.hpp>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "small_tokenizer.hpp"

namespace maniple {
namespace {

using namespace testing;

enum class Role : uint8_t { blank, thought, mark, answer };

// Tokens with what each of them is.
struct Output {
  Ids ids;
  std::vector<Role> roles;

  void add(const Ids& more, Role role) {
    ids.insert(ids.end(), more.begin(), more.end());
    roles.resize(ids.size(), role);
  }
};

struct Family {
  std::string name, base, open, close;
  bool special;                    // marks are left out of decoded text by themselves
  std::string before_the_thought;  // what the model says there
  std::string generation_prompt;   // ends with the open mark where the template opens the thought
};

const std::vector<Family> reasoning_families = {
    {"qwen3", "qwen-style", "<think>", "</think>", false, "", "<|im_start|>assistant\n"},
    {"qwen3-thinking", "qwen-style", "<think>", "</think>", false, "", "<|im_start|>assistant\n<think>\n"},
    {"deepseek-r1", "llama3-style", "<think>", "</think>", false, "", "Assistant:<think>\n"},
    {"glm", "qwen-style", "<think>", "</think>", false, "\n", "<|im_start|>assistant"},
    {"minimax", "llama3-style", "<think>", "</think>", false, "", "<|eot_id|>ai\n<think>\n"},
    {"mistral", "llama3-style", "[THINK]", "[/THINK]", true, "", "[/INST]"}};

Tokenizer tokenizer_of(const Family& family) {
  nlohmann::json json = read_json(family_file(family.base, "tokenizer.json"));
  auto& added = json["added_tokens"];
  const int next = added.back()["id"].get<int>() + 1;
  for (int i = 0; i < 2; ++i) {
    added.push_back(added_token(i == 0 ? family.open : family.close, next + i));
    added.back()["special"] = family.special;
  }
  return build(json);
}

class MadeUp {
 public:
  MadeUp(const Family& family, const Tokenizer& tokenizer)
      : family_(family), tokenizer_(tokenizer), prompt_(ids_of(family.generation_prompt)) {}

  Ids ids_of(const std::string& text) const { return tokenizer_.encode(text, false); }
  bool prompt_opens() const { return family_.generation_prompt.find(family_.open) != std::string::npos; }
  const Ids& prompt() const { return prompt_; }

  // Text in ordinary tokens, of many languages, with the marks spelt out.
  Ids words(std::mt19937& random, size_t count) const {
    static const std::vector<std::string> pieces = {"Four. ", "é",   "漢字",   "🙂",          "\n\n",
                                                    " 2 + 2", "ß\t", "\u200b", "🏴‍☠️", "  "};
    Ids ids;
    for (size_t i = 0; i < count; ++i) {
      const size_t pick = random() % (pieces.size() + 2);
      if (pick >= pieces.size()) {
        for (const char c : pick == pieces.size() ? family_.open : family_.close)
          std::ranges::copy(ids_of(std::string(1, c)), std::back_inserter(ids));
      } else {
        std::ranges::copy(ids_of(pieces[pick]), std::back_inserter(ids));
      }
    }
    return ids;
  }

  Output output(uint32_t seed) const {
    std::mt19937 random(seed);
    Output output;
    const bool thinks = prompt_opens() || seed % 4 != 0;
    if (thinks && !prompt_opens()) {
      output.add(ids_of(family_.before_the_thought), Role::blank);
      output.add({*tokenizer_.token_id(family_.open)}, Role::mark);
    }
    if (thinks) {
      output.add(words(random, random() % 8), Role::thought);
      output.add({*tokenizer_.token_id(family_.close)}, Role::mark);
    } else {
      output.add(ids_of("It is"), Role::answer);
    }
    output.add(words(random, random() % 8), Role::answer);
    if (thinks && seed % 5 == 0) {  // marks as words of the answer
      output.add({*tokenizer_.token_id(family_.open)}, Role::answer);
      output.add(words(random, 2), Role::answer);
      output.add({*tokenizer_.token_id(family_.close)}, Role::answer);
    }
    return output;
  }

  // Of the first `length` tokens.
  std::string text(const Output& output, size_t length, Role role) const {
    Ids ids;
    for (size_t i = 0; i < length; ++i)
      if (output.roles[i] == role) ids.push_back(output.ids[i]);
    return tokenizer_.decode(ids, true);
  }

  std::string says_before(const Output& output, size_t length) const {
    const bool only_blank =
        std::all_of(output.roles.begin(), output.roles.begin() + static_cast<long>(length),
                    [](Role role) { return role == Role::blank; });
    return only_blank ? text(output, length, Role::blank) : "";
  }

 private:
  const Family& family_;
  const Tokenizer& tokenizer_;
  Ids prompt_;
};

TEST(Reasoning, IsApartInSixtyOutputsOfEachFamilyCutAtEveryToken) {
  size_t cut_characters = 0;
  for (const Family& family : reasoning_families) {
    const Tokenizer tokenizer = tokenizer_of(family);
    const MadeUp made(family, tokenizer);
    const auto reasoning = Reasoning::of("auto", tokenizer, made.prompt());
    ASSERT_TRUE(reasoning) << family.name;
    for (uint32_t seed = 0; seed < 60; ++seed) {
      const Output output = made.output(seed);
      for (size_t length = 0; length <= output.ids.size(); ++length) {
        const auto [thought, answer, calls] =
            reasoning->split(tokenizer, std::span(output.ids).first(length));
        EXPECT_TRUE(calls.empty());
        EXPECT_EQ(thought, made.text(output, length, Role::thought)) << family.name << seed << ' ' << length;
        EXPECT_EQ(answer, made.prompt_opens()
                              ? made.text(output, length, Role::answer)
                              : made.says_before(output, length) + made.text(output, length, Role::answer))
            << family.name << seed << ' ' << length;
        cut_characters += thought.ends_with("\xef\xbf\xbd");
      }
    }
  }
  EXPECT_GT(cut_characters, 100U);
}

// As a stop string does: the text that remains is the beginning of thought, mark and answer.
TEST(Reasoning, LosesWhatAStopStringCutsOffTheEnd) {
  for (const Family& family : reasoning_families) {
    const Tokenizer tokenizer = tokenizer_of(family);
    const MadeUp made(family, tokenizer);
    const auto reasoning = Reasoning::of("auto", tokenizer, {});
    Output output;
    output.add({*tokenizer.token_id(family.open)}, Role::mark);
    output.add(made.ids_of("Two é, two 漢."), Role::thought);
    output.add({*tokenizer.token_id(family.close)}, Role::mark);
    output.add(made.ids_of("\n\nFour ü."), Role::answer);
    const std::string thought = "Two é, two 漢.", mark = family.special ? "" : family.close,
                      answer = "\n\nFour ü.";
    for (size_t cut = 0; cut <= (thought + mark + answer).size(); ++cut) {
      const size_t kept = (thought + mark + answer).size() - cut;
      const auto text = reasoning->split(tokenizer, output.ids, cut);
      EXPECT_EQ(text.thought, thought.substr(0, kept)) << family.name << cut;
      EXPECT_EQ(text.answer, answer.substr(0, kept - std::min(kept, (thought + mark).size())))
          << family.name << cut;
    }
  }
}

TEST(Reasoning, BeginsWhereTheTemplateOpensItAndIsOverWhereTheTemplateClosesIt) {
  const Family& family = reasoning_families[0];
  const Tokenizer tokenizer = tokenizer_of(family);
  const auto split = [&](const std::string& prompt, const std::string& output) {
    const auto text = Reasoning::of("think", tokenizer, tokenizer.encode(prompt, false))
                          ->split(tokenizer, tokenizer.encode(output, false));
    return std::pair(text.thought, text.answer);
  };
  using Texts = std::pair<std::string, std::string>;
  EXPECT_EQ(split("<think>", "a"), Texts("a", ""));
  EXPECT_EQ(split("<think>\n \t", "a</think>b"), Texts("a", "b"));
  EXPECT_EQ(split("<think>\n", "\n<think>a</think>b"), Texts("a", "b")) << "opened twice";
  EXPECT_EQ(split("What does <think> mean?<|im_end|>\n", "It"), Texts("", "It")) << "a user's word";
  EXPECT_EQ(split("<think>\n\n</think>\n\n", "a</think>b"), Texts("", "a</think>b"));
  EXPECT_EQ(split("<think>\n\n</think>\n\n", "<think>a</think>b"), Texts("a", "b"));
  EXPECT_EQ(split("<think>\nSo", " a</think>b"), Texts(" a", "b")) << "a thought that the user began";
  EXPECT_EQ(split("", "<think></think>b"), Texts("", "b"));
  EXPECT_EQ(split("", "<think>a<think>b</think>c</think>d"), Texts("a<think>b", "c</think>d"));
  EXPECT_EQ(split("", "The marks <think> and </think>."), Texts("", "The marks <think> and </think>."));
  EXPECT_EQ(split("", " \n"), Texts("", " \n"));
}

struct Message {
  std::string header;
  enum Kind : uint8_t { thought, answer, call } kind;
  std::string text;
};

// Headers as gpt-oss writes them, and as its template does. A recipient of calls is "functions.f".
std::vector<Message> some_messages(std::mt19937& random) {
  static const std::vector<Message> forms = {
      {"<|channel|>analysis<|message|>", Message::thought, ""},
      {"<|channel|>analysis to=python code<|message|>", Message::thought, ""},
      {"<|channel|>commentary<|message|>", Message::answer, ""},
      {"<|channel|>commentary <|constrain|>json<|message|>", Message::answer, ""},
      {"<|channel|>final<|message|>", Message::answer, ""},
      {"<|channel|>final <|constrain|>json<|message|>", Message::answer, ""},
      {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>", Message::call, ""},
      {"<|channel|>commentary to=functions.f<|constrain|>json<|message|>", Message::call, ""},
      {"<|channel|>commentary functions.f<|message|>", Message::call, ""},
      {" to=functions.f<|channel|>commentary json<|message|>", Message::call, ""}};
  static const std::vector<std::string> texts = {
      "", "We é think 漢字 🙂.", "\n{\"a\": 1}\n", "analysis assistant final", "It says <|channel |>",
      "ß"};
  std::vector<Message> messages(1 + random() % 4);
  for (Message& message : messages) {
    message = forms[random() % forms.size()];
    message.text = texts[random() % texts.size()];
  }
  return messages;
}

class Harmony : public ::testing::Test {
 protected:
  Ids ids_of(const std::string& text) const { return tokenizer_.encode(text, false); }
  Reasoning::Text split(const std::string& prompt, const Ids& output, size_t cut = 0) const {
    return Reasoning::of("harmony", tokenizer_, ids_of(prompt))->split(tokenizer_, output, cut);
  }
  Reasoning::Text split(const std::string& prompt, const std::string& output) const {
    return split(prompt, ids_of(output));
  }

  Tokenizer tokenizer_ = family_tokenizer("harmony-style");
};

// Joins what is not empty, as vLLM does with the messages of a channel.
void expect_first(const std::vector<std::pair<Message, Ids>>& messages, const Tokenizer& tokenizer,
                  size_t length, const Reasoning::Text& found, const std::string& where) {
  std::vector<std::string> thoughts, answers, calls;
  for (const auto& [message, text] : messages) {
    const Ids header = tokenizer.encode(message.header, false);
    if (length < header.size()) break;
    length -= header.size();
    const size_t kept = std::min(length, text.size());
    const std::string said = tokenizer.decode(std::span(text).first(kept), true);
    auto& list = message.kind == Message::thought  ? thoughts
                 : message.kind == Message::answer ? answers
                                                   : calls;
    if (!said.empty() || message.kind == Message::call) list.push_back(said);
    length -= kept;
  }
  EXPECT_EQ(found.thought, fmt::format("{}", fmt::join(thoughts, "\n"))) << where;
  EXPECT_EQ(found.answer, fmt::format("{}", fmt::join(answers, "\n"))) << where;
  ASSERT_EQ(found.calls.size(), calls.size()) << where;
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(found.calls[i].recipient, "functions.f") << where;
    EXPECT_EQ(found.calls[i].arguments, calls[i]) << where;
  }
}

TEST_F(Harmony, ChannelsAreApartInOutputsCutAtEveryToken) {
  const std::string user = "<|start|>user<|message|>Hi<|end|>";
  for (uint32_t seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<Message, Ids>> messages;
    Ids output;
    std::string prompt = user;
    for (Message& message : some_messages(random)) {
      // The prompt has the first role, or the first header, or leaves both to the model.
      const bool first = messages.empty();
      const size_t begun = !first ? 0 : message.kind == Message::call ? seed % 2 : seed % 3;
      if (begun > 0) prompt += "<|start|>assistant";
      if (begun == 0) message.header.insert(0, "<|start|>assistant");
      if (begun == 2) prompt += std::exchange(message.header, "");
      Ids text = ids_of(message.text);
      for (const Ids& more : {ids_of(message.header), text})
        output.insert(output.end(), more.begin(), more.end());
      messages.emplace_back(message, text);
      const bool ends = random() % 8 > 0;
      if (ends)
        output.push_back(*tokenizer_.token_id(message.kind == Message::call ? "<|call|>" : "<|end|>"));
      if (ends) messages.push_back({{"<|end|>", Message::answer, ""}, {}});
    }
    for (size_t length = 0; length <= output.size(); ++length)
      expect_first(messages, tokenizer_, length, split(prompt, Ids(output.begin(), output.begin() + length)),
                   fmt::format("{} {}", seed, length));
  }
}

TEST_F(Harmony, StopStringsCutTextsAndHeaders) {
  const Ids output = ids_of(
      "<|channel|>analysis<|message|>Hm é.<|end|><|start|>assistant to=functions.f<|channel|>commentary json"
      "<|message|>{1}<|call|><|start|>assistant<|channel|>final<|message|>Four.");
  const std::string call = "assistant to=functions.fcommentary json", final = "assistantfinal",
                    whole = "analysisHm é." + call + "{1}" + final + "Four.";
  ASSERT_EQ(tokenizer_.decode(output, true), whole);
  const size_t thought = whole.find("Hm"), arguments = whole.find("{1}"), answer = whole.find("Four.");
  const auto part = [&](size_t begin, size_t end, size_t kept) {
    return whole.substr(begin, std::min(std::max(begin, kept), end) - begin);
  };
  for (size_t kept = 0; kept <= whole.size(); ++kept) {
    const Reasoning::Text text = split("<|start|>assistant", output, whole.size() - kept);
    EXPECT_EQ(text.thought, part(thought, thought + 6, kept)) << kept;
    EXPECT_EQ(text.answer, part(answer, whole.size(), kept)) << kept;
    ASSERT_EQ(text.calls.size(), kept >= arguments ? 1U : 0U) << kept;
    if (kept >= arguments) {
      EXPECT_EQ(text.calls[0].arguments, part(arguments, arguments + 3, kept)) << kept;
    }
  }
}

TEST_F(Harmony, LosesNothingWhereTheModelBreaksTheForm) {
  const std::string role = "<|start|>assistant";
  const auto both = [&](const std::string& prompt, const std::string& output) {
    const Reasoning::Text text = split(prompt, output);
    EXPECT_TRUE(text.calls.empty());
    return std::pair(text.thought, text.answer);
  };
  using Texts = std::pair<std::string, std::string>;
  EXPECT_EQ(both("Once upon", " a time"), Texts("", " a time")) << "no messages at all";
  EXPECT_EQ(both(role, "<|message|>Hi"), Texts("", "Hi")) << "no channel";
  EXPECT_EQ(both(role, "<|channel|>song<|message|>La"), Texts("", "La")) << "a channel of its own";
  EXPECT_EQ(both(role, "<|channel|>analysis<|message|>a<|channel|>final<|message|>b"), Texts("a", "b"));
  EXPECT_EQ(both(role, "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b"),
            Texts("a", "b"));
  EXPECT_EQ(both(role, "<|channel|>final<|message|>a<|return|>b"), Texts("", "a\nb")) << "ended before";
  EXPECT_EQ(both(role, "<|channel|>analysis<|end|><|start|>assistant<|channel|>final<|message|>b"),
            Texts("", "b"));
  EXPECT_EQ(both(role, "<|channel|>final<|message|>a<|message|>b"), Texts("", "a\nb"));
}

TEST_F(Harmony, CallsOfBuiltInToolsAndWithoutArgumentsAreCalls) {
  const Reasoning::Text text =
      split("<|start|>assistant", "<|channel|>commentary to=browser.search code<|message|><|call|>");
  ASSERT_EQ(text.calls.size(), 1U);
  EXPECT_EQ(text.calls[0].recipient, "browser.search");
  EXPECT_EQ(text.calls[0].arguments, "");
}

TEST(Reasoning, HasAFormatOnlyWhereItsMarksAreTokensOfTheirOwn) {
  EXPECT_FALSE(Reasoning::of("auto", family_tokenizer("qwen-style"), {}));
  const Tokenizer think = tokenizer_of(reasoning_families[0]), mistral = tokenizer_of(reasoning_families[5]);
  EXPECT_TRUE(Reasoning::of("think", think, {}));
  EXPECT_FALSE(Reasoning::of("mistral", think, {}));
  EXPECT_TRUE(Reasoning::of("mistral", mistral, {}));
  EXPECT_FALSE(Reasoning::of("think", mistral, {}));
  nlohmann::json ordinary = small_tokenizer();
  ordinary["model"]["vocab"].update({{"<think>", 10}, {"</think>", 11}});
  EXPECT_FALSE(Reasoning::of("auto", build(ordinary), {}));
  EXPECT_TRUE(Reasoning::of("auto", family_tokenizer("kimi-style"), {})) << "from tiktoken.model";
  const Tokenizer harmony = family_tokenizer("harmony-style");
  EXPECT_TRUE(Reasoning::of("auto", harmony, {}));
  EXPECT_FALSE(Reasoning::of("think", harmony, {}));
  EXPECT_FALSE(Reasoning::of("harmony", think, {}));
}

TEST(Reasoning, IsKnownByItsNamesAndThoseOfOthers) {
  for (const std::string& name : reasoning_names()) EXPECT_EQ(reasoning_name(name), name);
  EXPECT_EQ(reasoning_name("split"), "auto");
  for (const char* name : {"qwen3", "deepseek_r1", "glm45", "minimax_m2"})
    EXPECT_EQ(reasoning_name(name), "think");
  for (const char* name : {"openai_gptoss", "gpt-oss"}) EXPECT_EQ(reasoning_name(name), "harmony");
  for (const char* name : {"", "on", "Think", "true"}) EXPECT_FALSE(reasoning_name(name));
}

}  // namespace
}  // namespace maniple
