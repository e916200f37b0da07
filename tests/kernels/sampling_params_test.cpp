#include <kernels/support/sampling_params.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

namespace maniple {
namespace {

std::optional<std::string> reason(auto change) {
  SamplingParams params;
  change(params);
  return invalid_reason(params);
}

TEST(SamplingParams, TheDefaultsAndTheLimitsOfEachRangeAreValid) {
  EXPECT_FALSE(reason([](auto&) {}));
  EXPECT_FALSE(reason([](auto& p) { p.temperature = 0; }));
  EXPECT_FALSE(reason([](auto& p) { p.temperature = 2; }));
  EXPECT_FALSE(reason([](auto& p) { p.top_k = -1; }));
  EXPECT_FALSE(reason([](auto& p) { p.min_p = 1; }));
  EXPECT_FALSE(reason([](auto& p) { p.min_tokens = p.max_tokens; }));
  EXPECT_FALSE(reason([](auto& p) { p.logprobs = 20; }));
}

TEST(SamplingParams, WhatLiesOutsideARangeIsRefusedWithItsNameAndValue) {
  EXPECT_EQ(reason([](auto& p) { p.temperature = 2.5; }), "temperature (2.5) must be from 0 (greedy) to 2");
  EXPECT_TRUE(reason([](auto& p) { p.temperature = -0.1F; }));
  EXPECT_TRUE(reason([](auto& p) { p.temperature = std::numeric_limits<float>::quiet_NaN(); }));
  EXPECT_TRUE(reason([](auto& p) { p.temperature = std::numeric_limits<float>::infinity(); }));
  EXPECT_EQ(reason([](auto& p) { p.top_k = -2; }),
            "top_k (-2) must be at least 1, or 0 or -1 to switch it off");
  EXPECT_EQ(reason([](auto& p) { p.top_p = 0; }), "top_p (0) must be above 0 and at most 1");
  EXPECT_TRUE(reason([](auto& p) { p.top_p = 1.1F; }));
  EXPECT_TRUE(reason([](auto& p) { p.top_p = std::numeric_limits<float>::quiet_NaN(); }));
  EXPECT_EQ(reason([](auto& p) { p.min_p = -1; }), "min_p (-1) must be from 0 to 1");
  EXPECT_TRUE(reason([](auto& p) { p.min_p = 1.1F; }));
  EXPECT_FALSE(reason([](auto& p) { p.max_tokens = 0; }));
  for (const uint32_t n : {0, 257})
    EXPECT_EQ(reason([&](auto& p) { p.n = n; }), fmt::format("n ({}) must be from 1 to 256", n));
  EXPECT_EQ(reason([](auto& p) { p.min_tokens = 65; }), "min_tokens (65) must not exceed max_tokens (64)");
  EXPECT_EQ(reason([](auto& p) { p.logprobs = 1025; }),
            "logprobs (1025) must be from 0 to 1024, or -1 for none");
  EXPECT_TRUE(reason([](auto& p) { p.prompt_logprobs = 1025; }));
  EXPECT_TRUE(reason([](auto& p) { p.logprobs = -2; }));
}

}  // namespace
}  // namespace maniple
