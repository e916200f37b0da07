#include <kernels/support/check.hpp>
#include <launch/nearest_name.hpp>
#include <launch/options.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace maniple {
namespace {

using Args = std::vector<std::string>;

GenerateOptions generate(Args extra) {
  Args args{"generate", "--model", "m", "--prompt", "p"};
  args.insert(args.end(), extra.begin(), extra.end());
  return std::get<GenerateOptions>(parse_arguments(args));
}

Error refusal(const Args& args) {
  try {
    parse_arguments(args);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "was not refused";
  return {ExitCode::complete, ""};
}

Error generate_refusal(Args extra) {
  Args args{"generate", "--model", "m", "--prompt", "p"};
  args.insert(args.end(), extra.begin(), extra.end());
  return refusal(args);
}

void expect_mentions(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) : path_(testing::TempDir() + "maniple_options_XXXXXX") {
    ::close(::mkstemp(path_.data()));
    std::ofstream(path_) << content;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Options, WithoutAnyTheDefaultsAreThoseOfTheHelp) {
  const GenerateOptions options = generate({});
  EXPECT_EQ(options.engine.tensor_size, 1);
  EXPECT_EQ(options.engine.dtype, DType::bf16);
  EXPECT_EQ(options.engine.block_size, 256U);
  EXPECT_EQ(options.engine.max_num_seqs, 256U);
  EXPECT_EQ(options.engine.max_num_batched_tokens, 2048U);
  EXPECT_EQ(options.engine.repro, Repro::grid);
  EXPECT_TRUE(options.engine.prefix_cache);
  EXPECT_FALSE(options.engine.random_weights);
  EXPECT_FALSE(options.engine.kv_memory);
  EXPECT_FALSE(options.seed);
  EXPECT_FALSE(options.sampling.temperature);
  EXPECT_FALSE(options.sampling.logprobs);
}

TEST(Options, EveryOptionOfGenerateArrives) {
  const GenerateOptions options = generate({"--tp",
                                            "4",
                                            "--max-tokens",
                                            "7",
                                            "--temperature",
                                            "0.5",
                                            "--top-k",
                                            "3",
                                            "--top-p=0.9",
                                            "--min-p",
                                            "0.1",
                                            "--seed",
                                            "18446744073709551615",
                                            "--ignore-eos",
                                            "--stop",
                                            "a",
                                            "--stop",
                                            "--- b",
                                            "--logprobs",
                                            "2",
                                            "--dtype",
                                            "fp32",
                                            "--backend",
                                            "reference",
                                            "--threads",
                                            "3",
                                            "--out",
                                            "o",
                                            "--block-size",
                                            "16",
                                            "--kv-memory",
                                            "2G",
                                            "--max-num-seqs",
                                            "5",
                                            "--max-num-batched-tokens",
                                            "99",
                                            "--max-model-len",
                                            "77",
                                            "--no-prefix-cache",
                                            "--repro",
                                            "batch",
                                            "--cpu-path",
                                            "avx2",
                                            "--load",
                                            "random"});
  EXPECT_EQ(options.engine.tensor_size, 4);
  EXPECT_EQ(options.sampling.max_tokens, 7U);
  EXPECT_EQ(options.sampling.temperature, 0.5F);
  EXPECT_EQ(options.sampling.top_k, 3);
  EXPECT_EQ(options.sampling.top_p, 0.9F);
  EXPECT_EQ(options.sampling.min_p, 0.1F);
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_EQ(options.sampling.ignore_eos, true);
  EXPECT_EQ(options.sampling.stop, (Args{"a", "--- b"}));
  EXPECT_EQ(options.sampling.logprobs, 2);
  EXPECT_EQ(options.engine.dtype, DType::fp32);
  EXPECT_EQ(options.engine.backend.kind, BackendKind::reference);
  EXPECT_EQ(options.engine.backend.cpu_path, CpuPath::avx2);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.out, "o");
  EXPECT_EQ(options.engine.block_size, 16U);
  EXPECT_EQ(options.engine.kv_memory, size_t{2} << 30);
  EXPECT_EQ(options.engine.max_num_seqs, 5U);
  EXPECT_EQ(options.engine.max_num_batched_tokens, 99U);
  EXPECT_EQ(options.engine.max_model_len, 77U);
  EXPECT_FALSE(options.engine.prefix_cache);
  EXPECT_EQ(options.engine.repro, Repro::batch);
  EXPECT_TRUE(options.engine.random_weights);
}

TEST(Options, LogprobsMayStandWithoutANumber) {
  EXPECT_EQ(generate({"--logprobs"}).sampling.logprobs, 0);
  EXPECT_EQ(generate({"--logprobs", "--tp", "2"}).sampling.logprobs, 0);
}

TEST(Options, AMisspeltOptionIsRefusedWithTheNearestName) {
  const Error error = generate_refusal({"--temprature", "1"});
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_STREQ(error.what(), "unknown option --temprature");
  EXPECT_EQ(error.remedy(), "did you mean --temperature?");
  EXPECT_EQ(generate_refusal({"--max_tokens=5"}).remedy(), "did you mean --max-tokens?");
}

TEST(Options, AnOptionLikeNoOtherIsRefusedWithTheWayToTheList) {
  expect_mentions(generate_refusal({"--frobnicate"}).remedy(), "maniple generate --help");
}

TEST(Options, AnAbbreviationIsNotGuessed) {
  expect_mentions(generate_refusal({"--temp", "1"}).what(), "unknown option --temp");
}

TEST(Options, WhatBelongsToNoOptionIsRefused) {
  expect_mentions(generate_refusal({"ROMEO"}).what(), "\"ROMEO\" belongs to no option");
}

TEST(Options, AnOptionWithoutItsValueDoesNotSwallowTheNext) {
  const Error error = refusal({"generate", "--model", "--tp", "2", "--prompt", "p"});
  EXPECT_STREQ(error.what(), "--model needs a value, but --tp follows");
}

TEST(Options, AnOptionGivenTwiceIsRefused) {
  expect_mentions(generate_refusal({"--tp", "1", "--tp", "2"}).what(), "--tp");
}

TEST(Options, AMisspeltValueIsRefusedWithTheNearest) {
  const Error error = generate_refusal({"--cpu-path", "avx512bf16"});
  expect_mentions(error.what(),
                  "--cpu-path (avx512bf16) must be one of: auto, amx, avx512_bf16, avx512, avx2, portable");
  EXPECT_EQ(error.remedy(), "did you mean avx512_bf16?");
  EXPECT_EQ(generate_refusal({"--dtype", "float"}).code(), ExitCode::usage);
  EXPECT_EQ(generate_refusal({"--repro", "grd"}).remedy(), "did you mean grid?");
  EXPECT_EQ(generate_refusal({"--load", "randm"}).remedy(), "did you mean random?");
  EXPECT_EQ(generate_refusal({"--backend", "cdua"}).code(), ExitCode::usage);
}

TEST(Options, AMisspeltCommandIsRefusedWithTheNearest) {
  EXPECT_EQ(refusal({"genrate"}).remedy(), "did you mean generate?");
  expect_mentions(refusal({}).what(), "the first word must be a command");
  expect_mentions(refusal({"--model", "m"}).what(), "the first word must be a command");
}

TEST(Options, NumbersOutOfRangeAreRefused) {
  const std::vector<Args> wrong = {{"--tp", "0"},
                                   {"--tp", "-1"},
                                   {"--tp", "two"},
                                   {"--tp", "2x"},
                                   {"--max-tokens", "0"},
                                   {"--max-tokens", "1.5"},
                                   {"--block-size", "24"},
                                   {"--block-size", "8"},
                                   {"--block-size", "512"},
                                   {"--threads", "0"},
                                   {"--max-num-seqs", "0"},
                                   {"--max-num-batched-tokens", "0"},
                                   {"--max-model-len", "0"},
                                   {"--temperature", "-1"},
                                   {"--temperature", "3"},
                                   {"--temperature", "nan"},
                                   {"--top-p", "0"},
                                   {"--top-p", "1.1"},
                                   {"--min-p", "2"},
                                   {"--top-k", "-2"},
                                   {"--logprobs", "21"},
                                   {"--logprobs", "-1"},
                                   {"--seed", "-1"},
                                   {"--seed", "18446744073709551616"},
                                   {"--kv-memory", "0"},
                                   {"--kv-memory", "4X"},
                                   {"--stop", ""}};
  for (const Args& args : wrong)
    EXPECT_EQ(generate_refusal(args).code(), ExitCode::usage) << args[0] << " " << args[1];
}

TEST(Options, BytesTakePowersOfTwoAndOfTen) {
  EXPECT_EQ(parse_bytes("512"), 512U);
  EXPECT_EQ(parse_bytes("3K"), 3U << 10);
  EXPECT_EQ(parse_bytes("3KiB"), 3U << 10);
  EXPECT_EQ(parse_bytes("3KB"), 3000U);
  EXPECT_EQ(parse_bytes("2MiB"), 2U << 20);
  EXPECT_EQ(parse_bytes("4G"), size_t{4} << 30);
  EXPECT_EQ(parse_bytes("1TB"), 1'000'000'000'000U);
  for (const char* wrong : {"", "G", "-1", "1.5G", "4g", "4GX", "4 G", "4iB", "99999999999T"})
    EXPECT_THROW(parse_bytes(wrong), Error) << wrong;
}

TEST(Options, AModelAndOneSourceOfPromptsAreNeeded) {
  expect_mentions(refusal({"generate", "--prompt", "p"}).what(), "no model was given");
  expect_mentions(refusal({"generate", "--model", "m"}).what(), "no prompt");
  expect_mentions(generate_refusal({"--in", "f"}).what(), "both --prompt and --in");
  expect_mentions(refusal({"tokenize"}).what(), "no model was given");
  expect_mentions(refusal({"tokenize", "--model", "m", "--chat", "--decode"}).what(), "--chat goes neither");
}

TEST(ConfigFile, GivesOptionsAndTheCommandLineWins) {
  const TemporaryFile file(
      "# a run\n\n tp = 2 \nmax-tokens=5\nignore-eos = true\nstop = a # b\nstop = c\r\nmodel = elsewhere\n");
  const GenerateOptions options = generate({"--config", file.path(), "--max-tokens", "9"});
  EXPECT_EQ(options.engine.tensor_size, 2);
  EXPECT_EQ(options.sampling.max_tokens, 9U);
  EXPECT_EQ(options.sampling.ignore_eos, true);
  EXPECT_EQ(options.sampling.stop, (Args{"a # b", "c"}));
  EXPECT_EQ(options.engine.model, "m");
}

TEST(ConfigFile, AMisspeltNameIsRefusedWithItsLineAndTheNearestName) {
  const TemporaryFile file("tp = 1\n\nmax-token = 5\n");
  const Error error = generate_refusal({"--config", file.path()});
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_EQ(error.what(), file.path() + " line 3: unknown option \"max-token\"");
  EXPECT_EQ(error.remedy(), "did you mean max-tokens?");
}

TEST(ConfigFile, ALineWithoutEqualsSignAndAnotherConfigFileAreRefused) {
  const TemporaryFile no_equals("ignore-eos\n");
  expect_mentions(generate_refusal({"--config", no_equals.path()}).what(), "line 1");
  const TemporaryFile nested("config = x\n");
  expect_mentions(generate_refusal({"--config", nested.path()}).what(), "unknown option \"config\"");
}

TEST(ConfigFile, OneThatIsNotThereIsAnotherErrorThanABadOption) {
  EXPECT_EQ(generate_refusal({"--config", "/nowhere/run.conf"}).code(), ExitCode::input);
}

TEST(Help, NamesEveryOptionWithItsDefaultAndAnExample) {
  const std::string text = std::get<Notice>(parse_arguments(Args{"generate", "--help"})).text;
  for (const char* part :
       {"--model DIR", "--block-size N (=256)", "--logprobs [=N(=0)]", "--repro LEVEL (=grid)",
        "mpirun -n 4 maniple generate", "--no-prefix-cache", "--config FILE", "--stop TEXT"})
    expect_mentions(text, part);
  expect_mentions(std::get<Notice>(parse_arguments(Args{"--help"})).text, "tokenize");
  expect_mentions(std::get<Notice>(parse_arguments(Args{"--version"})).text, "maniple ");
}

TEST(NearestName, IsTheOneWithTheFewestEditsIfItIsNear) {
  const Args names{"top-k", "top-p", "temperature"};
  EXPECT_EQ(nearest_name("topp", names), "top-p");
  EXPECT_EQ(nearest_name("tempertaure", names), "temperature");
  EXPECT_FALSE(nearest_name("quantum", names));
  EXPECT_FALSE(nearest_name("x", Args{}));
}

}  // namespace
}  // namespace maniple
