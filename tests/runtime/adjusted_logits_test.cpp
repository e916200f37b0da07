// Requests that change logits: the same text on every grid, in every batch and schedule, and what they forbid is not drawn.
#include <support/cover.hpp>
#include <support/serving.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace maniple {
namespace {

using testing::print;
using testing::serve;
using testing::Served;

EngineOptions options_for(DType dtype) {
  EngineOptions options;
  options.model = testing::model_directory("shakespeare");  // 2,048 tokens
  options.dtype = dtype;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 512;
  options.kv_memory = size_t{64} << 20;
  options.block_size = 32;
  return options;
}

// Half of the prompts begin alike, so that blocks of others serve them.
std::vector<GenerationRequest> requests_of_all_kinds(size_t count) {
  std::vector<GenerationRequest> requests;
  std::mt19937 random(11);
  const auto below = [&](uint32_t limit) { return static_cast<int32_t>(random() % limit); };
  for (size_t i = 0; i < count; ++i) {
    GenerationRequest& request = requests.emplace_back();
    request.id = i;
    const int32_t length = 1 + below(90);
    for (int32_t token = 0; token < length; ++token)
      request.prompt.push_back(i % 2 == 0 ? 100 + token * 7 % 50 : below(2000));
    SamplingParams& sampling = request.sampling;
    sampling.max_tokens = static_cast<uint32_t>(20 + below(20));
    sampling.seed = random();
    sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    if (i % 4 == 1) sampling.top_k = 40;
    if (i % 4 == 2) sampling.top_p = 0.9F;
    sampling.logprobs = static_cast<int32_t>(i % 4) - 1;
    if (i % 2 == 0) sampling.repetition_penalty = 1.2F;
    if (i % 3 == 1) sampling.frequency_penalty = 0.3F;
    if (i % 5 == 1) sampling.presence_penalty = -0.4F;
    if (i % 4 == 3) sampling.min_tokens = 10;
    if (i % 6 == 5) sampling.logit_bias = {{13, 3.5F}, {1999, -100}};
    if (i % 7 == 2)
      for (int32_t id = 5; id < 2040; id += 3) sampling.allowed_token_ids.push_back(id);
    if (i % 5 == 4) request.sampling.bad_words = {"the", "and", "my lord"};
    for (int32_t token = below(7); token < 2048; token += 29) sampling.stop_token_ids.push_back(token);
  }
  return requests;
}

TEST(AdjustedLogits, GiveTheSameTextOnEveryGridBatchAndSchedule) {
  struct Case {
    int tensor, data, pipeline;
    uint32_t steps, tokens, block_size;
    bool prefix_cache, tight;
  };
  const std::vector<GenerationRequest> requests = requests_of_all_kinds(16);
  const auto runs = testing::each_value(std::vector{DType::bf16, DType::fp32},
                                        std::vector<Case>{{2, 1, 1, 2, 512, 32, true, false},
                                                          {4, 1, 1, 3, 24, 16, true, false},
                                                          {1, 2, 1, 2, 64, 16, false, false},
                                                          {1, 1, 3, 4, 24, 16, true, true},
                                                          {2, 1, 2, 3, 64, 16, false, true}});
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    const std::string expected = print(serve(1, options_for(dtype), requests));
    for (const auto& [of_type, run] : runs) {
      if (of_type != dtype) continue;
      EngineOptions options = options_for(dtype);
      options.tensor_size = run.tensor;
      options.pipeline_size = run.pipeline;
      options.steps_in_flight = run.steps;
      options.max_num_batched_tokens = run.tokens;
      options.block_size = run.block_size;
      options.prefix_cache = run.prefix_cache;
      if (run.tight)
        options.kv_memory = size_t{20} * 2 * (run.pipeline == 3 ? 2 : 3) * 64 * 16 *
                            (4 / static_cast<size_t>(run.tensor)) * size_of(dtype);
      const Served served = serve(run.tensor * run.data * run.pipeline, options, requests);
      EXPECT_EQ(print(served), expected)
          << name_of(dtype) << " tp " << run.tensor << " dp " << run.data << " pp " << run.pipeline;
      if (run.tight) {
        EXPECT_GT(served.summary.preemptions, 0u);
      }
    }
  }
}

// Of other kernels, on two ranks.
TEST(AdjustedLogits, GiveTheTokensOfTheReference) {
  std::vector<GenerationRequest> requests = requests_of_all_kinds(8);
  for (GenerationRequest& request : requests) request.sampling.logprobs = -1;
  EngineOptions options = options_for(DType::fp32);
  const std::string expected = print(serve(1, options, requests));
  options.backend.kind = BackendKind::reference;
  EXPECT_EQ(print(serve(2, options, requests)), expected);
}

// The prompt counts like the completion, and noise is that of a position: each token is that of a request for one.
TEST(AdjustedLogits, RepetitionOverACompletionIsThatOfOneTokenAtATime) {
  std::vector<GenerationRequest> requests = requests_of_all_kinds(3);
  for (GenerationRequest& request : requests)
    request.sampling = {.temperature = request.sampling.temperature,
                        .seed = request.id,
                        .max_tokens = 12,
                        .ignore_eos = true,
                        .repetition_penalty = 0.5F};
  const EngineOptions options = options_for(DType::fp32);
  const Served at_once = serve(1, options, requests);
  std::vector<GenerationRequest> single;
  for (const GenerationRequest& request : requests)
    for (size_t at = 0; at < 12; ++at) {
      GenerationRequest& one = single.emplace_back(request);
      const std::vector<int32_t>& tokens = at_once.completions.at(request.id).answers.at(0).tokens;
      one.id = request.id * 12 + at;
      one.prompt.insert(one.prompt.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(at));
      one.sampling.max_tokens = 1;
    }
  const Served one_at_a_time = serve(1, options, single);
  for (const GenerationRequest& one : single)
    EXPECT_EQ(one_at_a_time.completions.at(one.id).answers.at(0).tokens[0],
              at_once.completions.at(one.id / 12).answers.at(0).tokens[one.id % 12])
        << one.id;
  for (GenerationRequest& request : requests) request.sampling.repetition_penalty = 1;
  EXPECT_NE(print(serve(1, options, requests)), print(at_once));
}

TEST(AdjustedLogits, WhatARequestForbidsIsNotDrawn) {
  GenerationRequest plain;
  plain.prompt = {52, 200, 97};
  plain.sampling = {.temperature = 1.0F, .seed = 3, .max_tokens = 60, .ignore_eos = true};
  std::vector<GenerationRequest> requests(5, plain);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].id = i;
  requests[1].sampling.allowed_token_ids = {7, 9, 300};
  requests[2].sampling.presence_penalty = requests[2].sampling.frequency_penalty = 2;
  for (int32_t id = 0; id < 300; ++id) requests[3].sampling.logit_bias.push_back({id, -100});
  for (int32_t id = 0; id < 256; ++id) requests[4].sampling.stop_token_ids.push_back(id * 8);
  requests[4].sampling.stop_token_ids.resize(250);
  requests[4].sampling.min_tokens = 30;
  const Served served = serve(2, options_for(DType::fp32), requests);
  const auto tokens_of = [&](size_t i) { return served.completions.at(i).answers.at(0).tokens; };
  EXPECT_EQ(tokens_of(0).size(), 60u);
  for (const int32_t id : tokens_of(1)) EXPECT_TRUE(id == 7 || id == 9 || id == 300) << id;
  for (const int32_t id : tokens_of(3)) EXPECT_GE(id, 300);
  EXPECT_GT(tokens_of(4).size(), 30u);
  for (size_t at = 0; at < 30; ++at) EXPECT_FALSE(tokens_of(4)[at] % 8 == 0 && tokens_of(4)[at] < 2000);
  EXPECT_NE(tokens_of(2), tokens_of(0));
  // Of a word the last token, where the others stand before it; text with and without a space.
  const std::vector<int32_t> tokens = tokens_of(0);
  plain.sampling.bad_word_ids = {{tokens[0], tokens[1]}, {tokens[9]}};
  plain.sampling.bad_words = {","};
  const std::vector<int32_t> others =
      serve(2, options_for(DType::fp32), {plain}).completions.at(0).answers.at(0).tokens;
  constexpr int32_t comma = 11;
  EXPECT_GT(std::ranges::count(tokens, comma), 0);
  EXPECT_EQ(std::ranges::count(others, comma), 0);
  EXPECT_EQ(std::ranges::count(others, tokens[9]), 0);
  EXPECT_EQ(others[0], tokens[0]);
  EXPECT_NE(others[1], tokens[1]);
}

TEST(AdjustedLogits, ARequestThatCouldDrawNoTokenIsRefused) {
  GenerationRequest plain;
  plain.prompt = {5};
  std::vector<GenerationRequest> requests(9, plain);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].id = i;
  requests[0].sampling.allowed_token_ids = {2048};
  requests[1].sampling.logit_bias = {{-1, 1}};
  requests[2].sampling.logit_bias = {{1, 100.5F}};
  requests[3].sampling.allowed_token_ids = requests[3].sampling.stop_token_ids = {4};
  requests[3].sampling.min_tokens = 1;
  requests[4].sampling.frequency_penalty = 2.5F;
  requests[5].sampling.repetition_penalty = 0;
  for (int32_t id = 0; id < 301; ++id) requests[6].sampling.logit_bias.push_back({id, 1});
  requests[7].prompt.assign(4001, 5);
  requests[7].sampling.prompt_logprobs = 1001;
  requests[8].sampling.n = 257;
  const Served served = serve(1, options_for(DType::fp32), requests);
  const std::vector<std::string> errors{
      "allowed_token_ids: token id 2048 is not in the vocabulary (0 to 2047)",
      "logit_bias: token id -1 is not in the vocabulary (0 to 2047)",
      "logit_bias of token 1 (100.5) must be from -100 to 100",
      "bad_words and min_tokens ban all tokens that are allowed, and none could be drawn",
      "frequency_penalty (2.5) must be from -2 to 2",
      "repetition_penalty (0) must be above 0",
      "logit_bias has 301 tokens, and 300 is the most",
      "prompt_logprobs (1001) of 4000 tokens are more than 4000000 log-probabilities; ask for fewer",
      "n (257) must be from 1 to 256"};
  for (size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(served.completions.at(i).error, errors[i]);
}

}  // namespace
}  // namespace maniple
