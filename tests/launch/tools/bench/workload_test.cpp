#include <launch/tools/bench/workload.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

namespace maniple {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

BenchOptions throughput(const std::string& lengths, std::optional<uint32_t> prompts = 3) {
  BenchOptions options;
  options.bench = BenchKind::throughput;
  options.lengths = parse_lengths("lengths", lengths);
  options.num_prompts = prompts;
  return options;
}

// A model that has only what is asked of it: nothing.
ModelFiles model() { return {std::filesystem::path(testing::TempDir())}; }

Workload drawn(const BenchOptions& options, uint32_t max_model_len = 1024) {
  return make_workload(options, model(), 512, max_model_len);
}

Error refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::complete, "nothing was refused"};
}

std::string csv(const std::string& text) {
  const std::string path = testing::TempDir() + "lengths.csv";
  std::ofstream(path) << text;
  return path;
}

TEST(Workload, TheSameSeedGivesTheSameRequestsEverywhere) {
  // By MT19937-64 with seed 0 and division into equal buckets, computed in Python.
  EXPECT_THAT(draw_lengths(parse_lengths("lengths", "uniform:64-512/16-256"), 4, 0, 4096),
              ElementsAre(RequestLength{135, 255}, RequestLength{81, 159}, RequestLength{307, 29},
                          RequestLength{347, 118}));
  EXPECT_EQ(drawn(throughput("uniform:1-9/1-9")).hash(), drawn(throughput("uniform:1-9/1-9")).hash());
  BenchOptions other = throughput("uniform:1-9/1-9");
  other.seed = 1;
  EXPECT_NE(drawn(other).hash(), drawn(throughput("uniform:1-9/1-9")).hash());
}

TEST(Workload, UniformLengthsReachBothEnds) {
  uint32_t least = 99, most = 0;
  for (const auto& [prompt, output] :
       draw_lengths(parse_lengths("lengths", "uniform:3-6/2-2"), 200, 0, 4096)) {
    least = std::min(least, prompt);
    most = std::max(most, prompt);
    EXPECT_EQ(output, 2u);
  }
  EXPECT_EQ(least, 3u);
  EXPECT_EQ(most, 6u);
}

TEST(Workload, ShareGptLengthsHaveTheMeansOfThePaper) {
  constexpr uint32_t count = 200'000;
  double prompts = 0, outputs = 0, logs = 0, squares = 0;
  for (const auto& [prompt, output] :
       draw_lengths(parse_lengths("lengths", "sharegpt"), count, 0, 1'000'000)) {
    prompts += prompt;
    outputs += output;
    logs += std::log(output);
    squares += std::log(output) * std::log(output);
  }
  EXPECT_NEAR(prompts / count, 161, 3);
  EXPECT_NEAR(outputs / count, 338, 3);
  EXPECT_NEAR(std::sqrt(squares / count - logs / count * logs / count), 0.9, 0.01);
  for (const auto& [prompt, output] : draw_lengths(parse_lengths("lengths", "sharegpt"), 1000, 0, 64))
    EXPECT_TRUE(prompt >= 1 && output >= 1 && prompt + output <= 64);
}

TEST(Workload, LinesOfAFileAreTakenInTheirOrder) {
  for (const char* text : {"prompt,output\n7,3\n1, 2\r\n\n9,9\n", "7,3\n1,2\n9,9"}) {
    const Workload workload = drawn(throughput(csv(text), 2));
    ASSERT_EQ(workload.requests.size(), 2u);
    EXPECT_EQ(workload.requests[0].prompt.size(), 7u);
    EXPECT_EQ(workload.requests[1].prompt.size(), 1u);
    EXPECT_EQ(workload.requests[1].output, 2u);
    EXPECT_EQ(drawn(throughput(csv(text), std::nullopt)).requests.size(), 3u);
  }
}

TEST(Workload, ABadFileIsRefusedWithItsLine) {
  for (const char* line : {"7", "7,", "0,1", "7,0", "7,3,1", "a,b", "-1,2", "output,prompt"}) {
    const Error error = refusal([&] { drawn(throughput(csv(fmt::format("prompt,output\n{}\n", line)), 1)); });
    EXPECT_EQ(error.code(), ExitCode::input) << line;
    EXPECT_THAT(error.what(),
                HasSubstr("lengths.csv line 2: \"" + std::string(line) + "\" is not prompt,output"));
  }
  EXPECT_THAT(refusal([] { drawn(throughput(csv("7,3\n"), 2)); }).what(),
              HasSubstr("has 1 request, 2 wanted"));
  EXPECT_EQ(refusal([] { drawn(throughput("nowhere.csv")); }).code(), ExitCode::input);
}

TEST(Workload, ARepeatHasOtherTokensOfTheSameLengthAndSharesAsMuch) {
  BenchOptions options = throughput("fixed:8/5", 2);
  options.prefix = 3;
  const Workload workload = drawn(options);
  const GenerationRequest first = workload.request(0, 0), second = workload.request(1, 0),
                          later = workload.request(0, 600);
  EXPECT_TRUE(std::equal(first.prompt.begin(), first.prompt.begin() + 3, second.prompt.begin()));
  EXPECT_NE(first.prompt, second.prompt);
  ASSERT_EQ(later.prompt.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(later.prompt[i], (first.prompt[i] + 600) % 512);
  EXPECT_EQ(first.sampling.max_tokens, 5u);
  EXPECT_TRUE(first.sampling.ignore_eos);
}

TEST(Workload, APrefixAboveAllPromptsIsRefused) {
  BenchOptions options = throughput("uniform:2-8/5-5");
  options.prefix = 9;
  EXPECT_THAT(refusal([&] { drawn(options); }).what(),
              HasSubstr("--prefix (9) is above the longest prompt ("));
}

TEST(Workload, ARequestThatDoesNotFitIsRefusedBeforeAnythingIsLoaded) {
  EXPECT_EQ(drawn(throughput("fixed:60/4"), 64).requests.size(), 3u);
  const Error error = refusal([] { drawn(throughput("fixed:60/5"), 64); });
  EXPECT_EQ(error.code(), ExitCode::input);
  EXPECT_STREQ(
      error.what(),
      "request 1 of the workload has 60 prompt tokens and 5 output tokens, the model takes 64 in sum");
}

TEST(Workload, NoTokenIsDrawnForARequestThatDoesNotFit) {
  EXPECT_EQ(refusal([] { drawn(throughput("fixed:100000000/1", 1'000'000)); }).code(), ExitCode::input);
}

TEST(Workload, TheLargestBatchDecidesHowManyRequestsThereAre) {
  BenchOptions options = throughput("fixed:4/4", std::nullopt);
  options.bench = BenchKind::latency;
  options.batch_sizes = {8, 2};
  EXPECT_EQ(drawn(options).requests.size(), 8u);
  EXPECT_EQ(drawn(throughput("fixed:4/4", std::nullopt)).requests.size(), 1000u);
}

TEST(Workload, RequestsOfAFileKeepTheirPromptsAndTheirMaxTokens) {
  const std::string path = testing::TempDir() + "requests.jsonl";
  std::ofstream(path) << R"({"id": 1, "tokens": [5, 6, 7], "max_tokens": 9})"
                         "\n"
                         R"({"tokens": [511]})"
                         "\n";
  BenchOptions options = throughput("fixed:4/4", std::nullopt);
  options.in = {path};
  const Workload workload = drawn(options);
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_THAT(workload.requests[0].prompt, ElementsAre(5, 6, 7));
  EXPECT_EQ(workload.requests[0].output, 9u);
  EXPECT_EQ(workload.requests[1].output, 64u);
  EXPECT_THAT(workload.request(1, 1).prompt, ElementsAre(0));
  std::ofstream(path) << R"({"tokens": [512]})"
                         "\n";
  EXPECT_THAT(refusal([&] { drawn(options); }).what(),
              HasSubstr("request 1: token id 512 is not in the vocabulary (0 to 511)"));
}

}  // namespace
}  // namespace maniple
