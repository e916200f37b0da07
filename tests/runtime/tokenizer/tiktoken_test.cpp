// tiktoken.model beyond the golden cases: long texts, special tokens, broken files.
#include <gtest/gtest.h>

#include <kernels/support/check.hpp>

#include "small_tokenizer.hpp"

namespace maniple::testing {
namespace {

std::string ranks_of_kimi_style() { return ModelFiles(family_file("kimi-style", "")).text("tiktoken.model"); }

std::string refusal_of_ranks(const std::string& ranks, const TokenSettings& settings = {}) try {
  Tokenizer::from_tiktoken(ranks, "m/tiktoken.model", settings);
  return "accepted";
} catch (const Error& error) {
  EXPECT_EQ(error.code(), ExitCode::input);
  return error.what();
}

TEST(Tiktoken, CutsLongTextsAndLongRunsAsKimiDoes) {
  const Tokenizer tokenizer = family_tokenizer("kimi-style");
  const auto cases = read_json(family_file("kimi-style", "cases.json"));
  for (const auto& example : cases["long"]) {
    std::string text;
    for (const auto& part : example["parts"])
      for (int i = 0; i < part[1]; ++i) text += part[0].get<std::string>();
    uint64_t fingerprint = 0;
    const Ids ids = tokenizer.encode(text, true);
    for (const int32_t id : ids) fingerprint = fingerprint * 1'000'003 + static_cast<uint64_t>(id) + 1;
    EXPECT_EQ(ids.size(), example["count"]) << example["parts"];
    EXPECT_EQ(std::to_string(fingerprint), example["fingerprint"]) << example["parts"];
    EXPECT_EQ(tokenizer.decode(ids, false), text) << example["parts"];
  }
}

TEST(Tiktoken, NamesTheReservedTokensThatTheConfigDoesNot) {
  const Tokenizer tokenizer = family_tokenizer("kimi-style");
  EXPECT_EQ(tokenizer.vocab_size(), 1456u);
  EXPECT_EQ(tokenizer.token_id("[BOS]"), 1200);
  EXPECT_EQ(tokenizer.token_id("<|reserved_token_1205|>"), 1205);
  EXPECT_EQ(tokenizer.token_id("[PAD]"), 1455);
  EXPECT_TRUE(tokenizer.is_special(1205));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.token_id("<think>")));
  TokenSettings settings;
  settings.added[1455] = {.content = "<end>"};
  settings.named.emplace_back("eos_token", settings.added[1455]);
  const Tokenizer named = Tokenizer::from_tiktoken(ranks_of_kimi_style(), "", settings);
  EXPECT_TRUE(named.is_special(1455));  // by its name
  EXPECT_EQ(named.token_id("<|reserved_token_1200|>"), 1200);
}

TEST(Tiktoken, RefusesABrokenLineWithItsNumber) {
  const std::string ranks = ranks_of_kimi_style();
  for (const char* line : {"YWI= ", "YWI=", "YWI 1200", "Y!I= 1200", "YWI= 12x", "YWI= -1", " 1200",
                           "YWI= 1200 1", "YWI= 99999999999999999999", "<html>"})
    EXPECT_EQ(refusal_of_ranks(ranks + line + "\n"),
              "tokenizer: line 1201 is not a token of up to 1024 bytes in base64, a space and its rank (in "
              "'m/tiktoken.model')")
        << line;
}

TEST(Tiktoken, RefusesATokenOfThousandsOfBytes) {
  const std::string ranks = ranks_of_kimi_style();
  EXPECT_NE(refusal_of_ranks(ranks + std::string(1368, 'A') + " 1200\n").find("line 1201"),
            std::string::npos);
  EXPECT_EQ(refusal_of_ranks(ranks + std::string(1364, 'A') + " 1200\n"), "accepted");
}

TEST(Tiktoken, RefusesWhatIsThereTwiceOrMissing) {
  const std::string ranks = ranks_of_kimi_style();
  const auto has = [](const std::string& text, std::string_view words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  has(refusal_of_ranks(ranks + "enp6enp6 7\n"), "lines 8 and 1201 give the rank 7 twice");
  has(refusal_of_ranks(ranks + "AA== 1200\n"), "the token of line 1201 stands on a line before it too");
  has(refusal_of_ranks(ranks + "enp6enp6 1201\n"), "1201 tokens have ranks up to 1201");
  has(refusal_of_ranks(ranks.substr(ranks.find('\n') + 1)), "no token of the byte 0");
  has(refusal_of_ranks(""), "no token of the byte 0");
  TokenSettings settings;
  settings.added[1456] = {.content = "<x>"};
  has(refusal_of_ranks(ranks, settings),
      "gives '<x>' the id 1456, but special tokens have the 256 ids from 1200 on");
}

TEST(Tiktoken, ReadsLinesOfWindows) {
  std::string ranks;
  for (const char c : ranks_of_kimi_style()) c == '\n' ? ranks += "\r\n" : ranks += c;
  EXPECT_EQ(refusal_of_ranks(ranks), "accepted");
}

}  // namespace
}  // namespace maniple::testing
