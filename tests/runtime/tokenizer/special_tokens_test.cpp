// Special tokens that tokenizer.json lacks or that other files describe otherwise; special_tokens.py has stored what transformers does.
#include <kernels/support/check.hpp>
#include <runtime/checkpoint/token_settings.hpp>

#include <gtest/gtest.h>
#include <support/temp_directory.hpp>

#include "small_tokenizer.hpp"

namespace maniple::testing {
namespace {

using nlohmann::json;

struct Case {
  TempDirectory folder;
  Case(const json& model, const json& added_tokens, const json& files) {
    json tokenizer = small_tokenizer();
    tokenizer["model"] = model;
    tokenizer["added_tokens"] = added_tokens;
    std::ofstream(folder / "tokenizer.json") << tokenizer;
    for (const auto& [name, content] : files.items()) std::ofstream(folder / name) << content;
  }
  TokenSettings settings() const { return read_token_settings(ModelFiles(folder.path())); }
  Tokenizer tokenizer() const {
    return Tokenizer::from_json(ModelFiles(folder.path()).text("tokenizer.json"), "tokenizer.json",
                                settings());
  }
};

TEST(SpecialTokens, HaveTheIdsAndFlagsThatTransformersGiveThem) {
  const json stored = read_json(test_data() / "special_tokens" / "cases.json");
  for (const json& each : stored["cases"]) {
    SCOPED_TRACE(each["name"].get<std::string>());
    const Case files(stored["model"], each["added_tokens"], each["files"]);
    const Tokenizer tokenizer = files.tokenizer();
    for (size_t i = 0; i < stored["texts"].size(); ++i) {
      const auto ids = tokenizer.encode(stored["texts"][i].get<std::string>(), false);
      EXPECT_EQ(json(ids), each["ids"][i]) << stored["texts"][i];
      EXPECT_EQ(tokenizer.decode(ids, true), each["skipped"][i].get<std::string>()) << stored["texts"][i];
    }
    json named = json::object();
    for (const auto& [name, token] : files.settings().named) named[name] = token.content;
    EXPECT_EQ(named, each["named"]);
  }
}

std::string refusal(const json& files) try {
  Case(small_tokenizer()["model"], json::array(), files).tokenizer();
  return "";
} catch (const Error& error) {
  return error.what();
}

TEST(SpecialTokens, AreRefusedByNameWhereTwoHaveOneId) {
  json decoder;
  decoder["3"] = added_token("<x>", 3);
  const std::string message = refusal({{"tokenizer_config.json", {{"added_tokens_decoder", decoder}}}});
  EXPECT_NE(message.find("'<x>' the id 3, which is that of 'd'"), std::string::npos) << message;
  const json same_id{{"<x>", 10}, {"<y>", 10}};
  const std::string of_two = refusal({{"added_tokens.json", same_id}});
  EXPECT_NE(of_two.find("\"<x>\" and \"<y>\" have the same id, 10"), std::string::npos) << of_two;
}

TEST(SpecialTokens, AreRefusedWhereAFileIsMalformed) {
  EXPECT_NE(refusal({{"added_tokens.json", {{"<x>", "10"}}}}).find("added_tokens.json: <x>"),
            std::string::npos);
  EXPECT_NE(refusal({{"tokenizer_config.json", {{"eos_token", 7}}}}).find("eos_token is 7"),
            std::string::npos);
  EXPECT_NE(refusal({{"tokenizer_config.json", json::array()}}).find("not a JSON object"), std::string::npos);
  EXPECT_NE(
      refusal({{"special_tokens_map.json", {{"extra_special_tokens", "<x>"}}}}).find("a list of tokens"),
      std::string::npos);
}

}  // namespace
}  // namespace maniple::testing
