// Files that are broken, malicious, or ask for unsupported features: each ends in a clear Error.
#include <gtest/gtest.h>

#include <kernels/support/check.hpp>

#include "small_tokenizer.hpp"

namespace maniple::testing {
namespace {

std::string complaint_about(std::string_view json) {
  try {
    Tokenizer::from_json(json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error.what();
  }
  return "accepted";
}

std::string complaint_with(const std::string& pointer, const nlohmann::json& value) {
  auto json = small_tokenizer();
  json[nlohmann::json::json_pointer(pointer)] = value;
  return complaint_about(json.dump());
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(HostileTokenizer, UnsupportedComponentsAreRefusedByName) {
  EXPECT_EQ(complaint_with("/pre_tokenizer", {{"type", "Punctuation"}}),
            "tokenizer: pre-tokenizer 'Punctuation' is not supported");
  EXPECT_EQ(complaint_with("/normalizer", {{"type", "BertNormalizer"}}),
            "tokenizer: normalizer 'BertNormalizer' is not supported");
  EXPECT_EQ(complaint_with("/decoder", {{"type", "WordPiece"}}),
            "tokenizer: decoder 'WordPiece' is not supported");
  EXPECT_EQ(complaint_with("/post_processor", {{"type", "RobertaProcessing"}}),
            "tokenizer: post-processor 'RobertaProcessing' is not supported");
  EXPECT_EQ(complaint_with("/model/type", "Unigram"), "tokenizer: model 'Unigram' is not supported");
  EXPECT_EQ(complaint_with("/model/type", "WordPiece"), "tokenizer: model 'WordPiece' is not supported");
  EXPECT_EQ(complaint_with("/version", "2.0"), "tokenizer: version '2.0' is not supported");
  const nlohmann::json nested = {{"type", "Sequence"},
                                 {"normalizers", {{{"type", "NFC"}}, {{"type", "StripAccents"}}}}};
  EXPECT_EQ(complaint_with("/normalizer", nested), "tokenizer: normalizer 'StripAccents' is not supported");
}

TEST(HostileTokenizer, UnsupportedSettingsAreRefusedByName) {
  EXPECT_CONTAINS(complaint_with("/model/dropout", 0.1), "'dropout'");
  EXPECT_CONTAINS(complaint_with("/model/end_of_word_suffix", "</w>"), "'end_of_word_suffix'");
  EXPECT_CONTAINS(complaint_with("/model/continuing_subword_prefix", "##"), "'continuing_subword_prefix'");
  EXPECT_CONTAINS(complaint_with("/truncation", {{"max_length", 10}}), "'truncation'");
  EXPECT_CONTAINS(complaint_with("/padding", {{"direction", "Right"}}), "'padding'");
  EXPECT_EQ(complaint_with("/model/end_of_word_suffix", ""), "accepted");
}

TEST(HostileTokenizer, IdsMustMakeSense) {
  EXPECT_CONTAINS(complaint_with("/model/vocab/a", -1), "'a' has id -1");
  EXPECT_CONTAINS(complaint_with("/model/vocab/a", 2147483648), "'a' has id 2147483648");
  EXPECT_CONTAINS(complaint_with("/model/vocab/a", 18446744073709551615u), "token id");
  EXPECT_CONTAINS(complaint_with("/model/vocab/a", 2147483647), "'a' has id 2147483647");
  EXPECT_CONTAINS(complaint_with("/model/vocab/a", 1), "share the id 1");
  EXPECT_CONTAINS(complaint_with("/model/vocab/a", 1.5), "'a'");
  EXPECT_CONTAINS(complaint_with("/model/vocab/a", "x"), "'a'");
  EXPECT_CONTAINS(complaint_with("/added_tokens", nlohmann::json::array({added_token("x", -5)})), "'x'");
  EXPECT_CONTAINS(complaint_with("/added_tokens", nlohmann::json::array({added_token("x", 2147483647)})),
                  "'x' has id 2147483647");
  EXPECT_CONTAINS(complaint_with("/added_tokens", nlohmann::json::array({added_token("a", 3)})),
                  "'a' has id 3");
}

TEST(HostileTokenizer, MergesMustNameTokens) {
  EXPECT_CONTAINS(complaint_with("/model/merges/0", {"b", "zz"}), "'bzz'");
  EXPECT_CONTAINS(complaint_with("/model/merges/0", {"a", "c"}), "'ac'");
  EXPECT_CONTAINS(complaint_with("/model/merges/0", {"a"}), "merge");
  EXPECT_CONTAINS(complaint_with("/model/merges/0", {"a", 1}), "merge");
  EXPECT_CONTAINS(complaint_with("/model/merges/0", "a b c"), "'a b c'");
  EXPECT_CONTAINS(complaint_with("/model/merges/0", "ab"), "'ab'");
  EXPECT_CONTAINS(complaint_with("/model/merges/0", 7), "merge 7");
}

TEST(HostileTokenizer, WrongTypesAreNamed) {
  for (const char* pointer :
       {"/normalizer", "/pre_tokenizer", "/decoder", "/post_processor", "/model", "/added_tokens",
        "/model/vocab", "/model/merges", "/model/unk_token", "/model/fuse_unk", "/model/type", "/version"})
    for (const nlohmann::json& value : {nlohmann::json(3), nlohmann::json("x"),
                                        nlohmann::json::array({1, "y"}), nlohmann::json{{"type", 5}}})
      if (!(value.is_string() && std::string(pointer) == "/model/unk_token")) {
        EXPECT_NE(complaint_with(pointer, value), "accepted") << pointer << " " << value;
      }
  EXPECT_NE(complaint_with("/added_tokens", nlohmann::json::array({{{"content", 5}, {"id", 10}}})),
            "accepted");
  EXPECT_NE(complaint_with("/decoder", {{"type", "Strip"}, {"content", "ab"}, {"start", 0}, {"stop", 0}}),
            "accepted");
  EXPECT_NE(complaint_with("/decoder", {{"type", "Strip"}, {"content", "a"}, {"start", -1}, {"stop", 0}}),
            "accepted");
  EXPECT_NE(complaint_with("/pre_tokenizer", {{"type", "Sequence"}}), "accepted");
}

TEST(HostileTokenizer, EveryTruncationIsRefused) {
  const auto whole = small_tokenizer().dump();
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(complaint_about(whole.substr(0, length)), "accepted") << length;
  EXPECT_EQ(complaint_about(whole), "accepted");
}

TEST(HostileTokenizer, NestingAndEncodingAreChecked) {
  EXPECT_CONTAINS(complaint_about(std::string(1'000'000, '[')), "nested deeper");
  auto broken = small_tokenizer().dump();
  broken.replace(broken.find("\"_\""), 3, "\"\xFF\"");
  EXPECT_CONTAINS(complaint_about(broken), "UTF-8");
}

TEST(HostileTokenizer, TheFileIsNamedWhereItIsGiven) {
  try {
    Tokenizer::from_json("[", "no/such/tokenizer.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_CONTAINS(std::string(error.what()), "no/such/tokenizer.json");
  }
}

nlohmann::json split_by(const std::string& pattern) {
  auto json = small_tokenizer();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return json;
}

TEST(HostileRegex, PatternsOfAnotherMeaningAreRefusedByName) {
  for (const char* pattern :
       {R"(a(?m:.)b)", R"([a&&b])", R"([a[bc]])", R"(\ba)", R"(\h)", R"([\W])", R"(a{1,2}+)", R"(a(?i)b|c)",
        "(*ACCEPT)", R"((a)\1)", "(", "[a", R"(\p{Klingon})", R"(\)", R"((?<=a+)b)", R"(\u12)"})
    EXPECT_CONTAINS(complaint_about(split_by(pattern).dump()), "regular expression") << pattern;
  for (const char* pattern : {R"((?i)a|b)", R"(\p{Han}|\p{^L}|[^\s\p{N}])", R"([\]\[])",
                              R"((?i:'s|'t)|\p{N}{1,3}|\s+(?!\S))", R"(\x{41}\u0042)"})
    EXPECT_EQ(complaint_about(split_by(pattern).dump()), "accepted") << pattern;
}

TEST(HostileRegex, CatastrophicBacktrackingEndsInAnError) {
  const auto tokenizer = build(split_by("(?:a+)+(?:_|x)"));
  EXPECT_THROW(tokenizer.encode(std::string(5000, 'a'), false), Error);
}

TEST(HostileRegex, DeepRecursionOnLongTextWorks) {
  const auto tokenizer = build(split_by("(?:a|b)+"));
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, 'b') + "d", false).size(), 1'000'001u);
}

}  // namespace
}  // namespace maniple::testing
