#include <runtime/checkpoint/generation_config.hpp>

#include "checkpoint_testing.hpp"

namespace maniple {
namespace {

GenerationConfig parse(std::string_view text) {
  return parse_generation_config(text, "generation_config.json");
}

TEST(GenerationConfig, ReadsTheDemoModelsSuggestions) {
  const GenerationConfig config =
      parse(ModelFiles(model_directory("shakespeare")).text("generation_config.json"));
  EXPECT_EQ(config.temperature, 0.8);
  EXPECT_EQ(config.top_k, 50);
  EXPECT_EQ(config.top_p, 0.95);
  EXPECT_EQ(config.min_p, 0.0);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{2047, 2045}));
  EXPECT_TRUE(config.warnings.empty());
}

TEST(GenerationConfig, IsGreedyWithoutDoSample) {
  EXPECT_EQ(parse("{}").temperature, 0.0);
  EXPECT_EQ(parse(R"({"temperature": 0.7, "top_k": 5})").temperature, 0.0);
  EXPECT_EQ(parse(R"({"do_sample": false, "temperature": 0.7})").top_k, 0);
  EXPECT_EQ(parse(R"({"do_sample": true})").temperature, 1.0);
}

TEST(GenerationConfig, WarnsAboutEverySettingThatHasNoEffect) {
  const GenerationConfig config =
      parse(R"({"repetition_penalty": 1.05, "num_beams": 4, "suppress_tokens": [7], "typical_p": 1.0,
                                            "forced_bos_token_id": null, "bad_words_ids": []})");
  ASSERT_EQ(config.warnings.size(), 3u);
  expect_contains(config.warnings[0], "repetition_penalty is 1.05");
  expect_contains(config.warnings[1], "num_beams is 4");
  expect_contains(config.warnings[2], "suppress_tokens is [7]");
}

TEST(GenerationConfig, RefusesImpossibleValues) {
  for (const std::string_view text :
       {R"({"do_sample": true, "temperature": -1})", R"({"do_sample": true, "top_p": 0})",
        R"({"do_sample": true, "top_p": 1.5})", R"({"do_sample": true, "min_p": "x"})",
        R"({"do_sample": true, "top_k": -2})", R"({"do_sample": 1})", R"({"eos_token_id": [[1]]})", "[]",
        "{"})
    expect_contains(input_error_of([&] { parse(text); }), "generation_config.json: ");
}

TEST(GenerationConfig, StopTokensAreTheUnionOfThreeFiles) {
  const std::vector<int32_t> config{9, 3}, generation{3, 1};
  EXPECT_EQ(union_of_eos(config, generation, 7), (std::vector<int32_t>{1, 3, 7, 9}));
  EXPECT_EQ(union_of_eos({}, {}, std::nullopt), std::vector<int32_t>{});
}

}  // namespace
}  // namespace maniple
