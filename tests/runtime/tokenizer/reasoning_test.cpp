#include <runtime/tokenizer/reasoning.hpp>

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
        const auto [thought, answer] = reasoning->split(tokenizer, std::span(output.ids).first(length));
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
}

TEST(Reasoning, IsKnownByItsNamesAndThoseOfOthers) {
  for (const std::string& name : reasoning_names()) EXPECT_EQ(reasoning_name(name), name);
  EXPECT_EQ(reasoning_name("split"), "auto");
  for (const char* name : {"qwen3", "deepseek_r1", "glm45", "minimax_m2"})
    EXPECT_EQ(reasoning_name(name), "think");
  for (const char* name : {"", "on", "Think", "true"}) EXPECT_FALSE(reasoning_name(name));
}

}  // namespace
}  // namespace maniple
