#include <runtime/checkpoint/generation_config.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include "checkpoint_testing.hpp"

#include <fmt/format.h>

#include <map>

namespace maniple {
namespace {

GenerationConfig parse(std::string_view text) {
  return parse_generation_config(text, "generation_config.json");
}

TEST(GenerationConfig, ReadsTheDemoModelsSuggestions) {
  const GenerationConfig config =
      parse(ModelFiles(model_directory("shakespeare")).text("generation_config.json"));
  EXPECT_EQ(config.sampling.temperature, 0.8F);
  EXPECT_EQ(config.sampling.top_k, 50);
  EXPECT_EQ(config.sampling.top_p, 0.95F);
  EXPECT_EQ(config.sampling.min_p, 0.0F);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{2047, 2045}));
  EXPECT_TRUE(config.warnings.empty());
}

TEST(GenerationConfig, SaysNothingOfSamplingWithoutDoSample) {
  EXPECT_FALSE(parse("{}").sampling.temperature);
  EXPECT_FALSE(parse(R"({"temperature": 0.7, "top_k": 5})").sampling.temperature);
  EXPECT_EQ(parse(R"({"do_sample": false, "temperature": 0.7})").sampling.temperature, 0.0F);
  EXPECT_EQ(parse(R"({"do_sample": false, "temperature": 0.7})").sampling.top_k, std::nullopt);
  EXPECT_EQ(parse(R"({"do_sample": true})").sampling.temperature, 1.0F);
}

// Every field of GenerationConfig in transformers 5.2 and 4.57, with a value that asks for something.
TEST(GenerationConfig, AppliesEveryFieldOrIgnoresWhatChangesNoTextOrWarnsByName) {
  const std::map<std::string, std::string> applied = {{"do_sample", "true"},   {"temperature", "0.5"},
                                                      {"top_k", "5"},          {"top_p", "0.5"},
                                                      {"min_p", "0.5"},        {"repetition_penalty", "1.1"},
                                                      {"max_new_tokens", "7"}, {"stop_strings", "[\"x\"]"},
                                                      {"eos_token_id", "3"}};
  // Beams, caches, outputs, drafts, encoders and compilers that maniple does not have; lengths that each request states itself.
  const std::map<std::string, std::string> neutral = {{"max_length", "99"},
                                                      {"early_stopping", "true"},
                                                      {"length_penalty", "2.0"},
                                                      {"use_cache", "false"},
                                                      {"cache_implementation", "\"static\""},
                                                      {"cache_config", "{\"a\": 1}"},
                                                      {"return_legacy_cache", "true"},
                                                      {"renormalize_logits", "true"},
                                                      {"output_attentions", "true"},
                                                      {"output_hidden_states", "true"},
                                                      {"output_scores", "true"},
                                                      {"output_logits", "true"},
                                                      {"return_dict_in_generate", "true"},
                                                      {"pad_token_id", "1"},
                                                      {"bos_token_id", "1"},
                                                      {"encoder_no_repeat_ngram_size", "2"},
                                                      {"decoder_start_token_id", "1"},
                                                      {"is_assistant", "true"},
                                                      {"num_assistant_tokens", "5"},
                                                      {"num_assistant_tokens_schedule", "\"constant\""},
                                                      {"assistant_confidence_threshold", "0.5"},
                                                      {"prompt_lookup_num_tokens", "3"},
                                                      {"max_matching_ngram_size", "2"},
                                                      {"assistant_early_exit", "2"},
                                                      {"assistant_lookbehind", "2"},
                                                      {"target_lookbehind", "2"},
                                                      {"compile_config", "{\"a\": 1}"},
                                                      {"disable_compile", "true"},
                                                      {"low_memory", "true"},
                                                      {"num_beam_groups", "2"},
                                                      {"prefill_chunk_size", "5"},
                                                      {"transformers_version", "\"5.2.0\""},
                                                      {"_from_model_config", "true"},
                                                      {"_commit_hash", "\"a\""}};
  const std::map<std::string, std::string> warned = {{"min_length", "3"},
                                                     {"min_new_tokens", "3"},
                                                     {"max_time", "2.5"},
                                                     {"num_beams", "4"},
                                                     {"top_h", "0.3"},
                                                     {"typical_p", "0.5"},
                                                     {"epsilon_cutoff", "0.1"},
                                                     {"eta_cutoff", "0.1"},
                                                     {"encoder_repetition_penalty", "1.1"},
                                                     {"no_repeat_ngram_size", "2"},
                                                     {"bad_words_ids", "[[1]]"},
                                                     {"forced_bos_token_id", "1"},
                                                     {"forced_eos_token_id", "1"},
                                                     {"remove_invalid_values", "true"},
                                                     {"exponential_decay_length_penalty", "[5, 1.1]"},
                                                     {"suppress_tokens", "[1]"},
                                                     {"begin_suppress_tokens", "[1]"},
                                                     {"sequence_bias", "[[[1], 2.0]]"},
                                                     {"token_healing", "true"},
                                                     {"guidance_scale", "1.5"},
                                                     {"watermarking_config", "{\"bias\": 2.5}"},
                                                     {"num_return_sequences", "2"},
                                                     {"penalty_alpha", "0.6"},
                                                     {"dola_layers", "\"high\""},
                                                     {"diversity_penalty", "0.5"},
                                                     {"constraints", "[1]"},
                                                     {"force_words_ids", "[[1]]"}};
  const auto warnings = [](const auto& field) {
    return parse(fmt::format("{{\"{}\": {}}}", field.first, field.second)).warnings;
  };
  for (const auto* silent : {&applied, &neutral})
    for (const auto& field : *silent) EXPECT_TRUE(warnings(field).empty()) << field.first;
  for (const auto& field : warned) {
    ASSERT_EQ(warnings(field).size(), 1u) << field.first;
    expect_contains(warnings(field)[0], field.first + " is ");
  }
  EXPECT_EQ(applied.size() + neutral.size() + warned.size(), 70u);
}

TEST(GenerationConfig, SuggestsALengthAndStopStringsAlsoWhereNothingIsSampled) {
  const GenerationConfig config = parse(R"({"max_new_tokens": 7, "stop_strings": ["a", "b"]})");
  EXPECT_EQ(config.sampling.max_tokens, 7u);
  EXPECT_EQ(config.sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse(R"({"stop_strings": "a"})").sampling.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(parse(R"({"do_sample": true, "top_k": -1})").sampling.top_k, 0);
}

TEST(GenerationConfig, PenalisesRepetitionAlsoWhereNothingIsSampled) {
  EXPECT_EQ(parse(R"({"repetition_penalty": 1.05})").sampling.repetition_penalty, 1.05F);
  EXPECT_EQ(parse(R"({"do_sample": true, "repetition_penalty": 1.05})").sampling.repetition_penalty, 1.05F);
  EXPECT_FALSE(parse("{}").sampling.repetition_penalty);
}

TEST(GenerationConfig, WarnsAboutEverySettingThatHasNoEffect) {
  const GenerationConfig config =
      parse(R"({"min_length": 3, "num_beams": 4, "suppress_tokens": [7], "typical_p": 1.0,
                                            "forced_bos_token_id": null, "bad_words_ids": []})");
  ASSERT_EQ(config.warnings.size(), 3u);
  expect_contains(config.warnings[0], "min_length is 3");
  expect_contains(config.warnings[1], "num_beams is 4");
  expect_contains(config.warnings[2], "suppress_tokens is [7]");
}

TEST(GenerationConfig, RefusesImpossibleValues) {
  for (const std::string_view text :
       {R"({"do_sample": true, "temperature": -1})", R"({"do_sample": true, "top_p": 0})",
        R"({"do_sample": true, "top_p": 1.5})", R"({"do_sample": true, "min_p": "x"})",
        R"({"do_sample": true, "top_k": -2})", R"({"repetition_penalty": 0})", R"({"do_sample": 1})",
        R"({"stop_strings": [1]})", R"({"stop_strings": ""})", R"({"max_new_tokens": 0})",
        R"({"eos_token_id": [[1]]})", "[]", "{"})
    expect_contains(input_error_of([&] { parse(text); }), "generation_config.json: ");
}

TEST(GenerationConfig, StopTokensAreTheUnionOfThreeFiles) {
  const std::vector<int32_t> config{9, 3}, generation{3, 1};
  EXPECT_EQ(union_of_eos(config, generation, 7), (std::vector<int32_t>{1, 3, 7, 9}));
  EXPECT_EQ(union_of_eos({}, {}, std::nullopt), std::vector<int32_t>{});
}

}  // namespace
}  // namespace maniple
