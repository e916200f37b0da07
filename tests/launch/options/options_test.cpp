#include <kernels/support/nearest_name.hpp>

#include "parsing.hpp"

#include <launch/commands/commands.hpp>

#include <cstdlib>
#include <fstream>

namespace maniple {
namespace {

void expect_mentions(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : path_(::testing::TempDir() + "maniple_options_XXXXXX") {
    ::close(::mkstemp(path_.data()));
    std::ofstream(path_) << content;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(GenerateOptions, TimesAreNothingUnlessGiven) {
  EXPECT_EQ(generate({}).time_limit.stop_before, std::nullopt);
  EXPECT_EQ(generate({}).time_limit.walltime, std::nullopt);
  const TimeLimit limit = generate({"--walltime", "4h", "--stop-before", "5m"}).time_limit;
  EXPECT_EQ(limit.walltime, std::chrono::hours(4));
  EXPECT_EQ(limit.stop_before, std::chrono::minutes(5));
}

TEST(Options, FewTokensOfAStepMeanAsFewSequencesUnlessTheyAreGiven) {
  EXPECT_EQ(generate({"--max-num-batched-tokens", "64"}).engine.max_num_seqs, 64U);
  EXPECT_EQ(generate({"--max-num-batched-tokens", "4096"}).engine.max_num_seqs, 256U);
  EXPECT_EQ(generate({"--max-num-batched-tokens", "64", "--max-num-seqs", "256"}).engine.max_num_seqs, 256U);
}

TEST(Options, WithoutAnyTheDefaultsAreThoseOfTheHelp) {
  const GenerateOptions options = generate({});
  EXPECT_EQ(options.transport, GpuTransport::automatic);
  EXPECT_EQ(options.engine.tensor_size, 1);
  EXPECT_EQ(options.engine.dtype, std::nullopt);
  EXPECT_EQ(options.engine.block_size, 256U);
  EXPECT_EQ(options.engine.max_num_seqs, 256U);
  EXPECT_EQ(options.engine.max_num_batched_tokens, 2048U);
  EXPECT_FALSE(options.engine.repro);
  EXPECT_TRUE(options.engine.prefix_cache);
  EXPECT_FALSE(options.engine.random_weights);
  EXPECT_FALSE(options.engine.kv_memory);
  EXPECT_FALSE(options.seed);
  EXPECT_FALSE(options.sampling.temperature);
  EXPECT_FALSE(options.sampling.logprobs);
  EXPECT_EQ(options.reasoning, "off");
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
                                            "--schedule",
                                            "prefill-first",
                                            "--no-prefix-cache",
                                            "--eager",
                                            "--gpu-memory-utilization",
                                            "0.5",
                                            "--repro",
                                            "batch",
                                            "--cpu-path",
                                            "avx2",
                                            "--transport",
                                            "host",
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
  EXPECT_EQ(options.transport, GpuTransport::host);
  EXPECT_EQ(options.engine.threads, 3);
  EXPECT_EQ(options.out, "o");
  EXPECT_EQ(options.engine.block_size, 16U);
  EXPECT_EQ(options.engine.kv_memory, size_t{2} << 30);
  EXPECT_EQ(options.engine.max_num_seqs, 5U);
  EXPECT_EQ(options.engine.max_num_batched_tokens, 99U);
  EXPECT_EQ(options.engine.max_model_len, 77U);
  EXPECT_EQ(options.engine.schedule, Policy::prefill_first);
  EXPECT_FALSE(options.engine.prefix_cache);
  EXPECT_TRUE(options.engine.eager);
  EXPECT_EQ(options.engine.gpu_memory_utilization, 0.5);
  EXPECT_EQ(options.engine.repro, Repro::batch);
  EXPECT_TRUE(options.engine.random_weights);
}

TEST(Options, AChatNeedsATextAndASystemMessageAChat) {
  EXPECT_FALSE(generate({}).chat);
  EXPECT_EQ(generate({"--chat", "--system", "s"}).system, "s");
  const auto with_input = [](const Args& more) {
    Args args{"generate", "--model", "m", "--chat", "--in"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  EXPECT_TRUE(options_of<parse_generate>(with_input({"a.txt.gz"})).chat);
  expect_mentions(refusal(with_input({"a.jsonl"})).what(), "--chat needs --prompt");
  expect_mentions(generate_refusal({"--system", "s"}).what(), "--system needs --chat");
}

TEST(Options, ReasoningHasTheNamesOfOthersAndNoUnknownOne) {
  EXPECT_EQ(generate({"--reasoning", "auto"}).reasoning, "auto");
  EXPECT_EQ(generate({"--reasoning", "deepseek_r1"}).reasoning, "think");
  const Error refused = generate_refusal({"--reasoning", "mistrall"});
  EXPECT_EQ(refused.code(), ExitCode::usage);
  expect_mentions(refused.what(), "must be one of: auto, off, think, mistral, harmony");
  expect_mentions(refused.remedy(), "mistral");
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
  EXPECT_EQ(generate({"--dtype", "fp16"}).engine.dtype, DType::fp16);
  EXPECT_EQ(generate({"--dtype", "auto"}).engine.dtype, std::nullopt);
  EXPECT_EQ(generate({}).engine.kv_cache_dtype, std::nullopt);
  EXPECT_EQ(generate({"--kv-cache-dtype", "auto"}).engine.kv_cache_dtype, std::nullopt);
  EXPECT_EQ(generate({"--kv-cache-dtype", "fp8"}).engine.kv_cache_dtype, DType::fp8);
  expect_mentions(generate_refusal({"--kv-cache-dtype", "int8"}).what(),
                  "--kv-cache-dtype (int8) must be one of: auto, fp8, bf16, fp16, fp32");
  EXPECT_EQ(generate_refusal({"--repro", "grd"}).remedy(), "did you mean grid?");
  EXPECT_EQ(generate_refusal({"--load", "randm"}).remedy(), "did you mean random?");
  EXPECT_EQ(generate_refusal({"--backend", "cdua"}).code(), ExitCode::usage);
}

TEST(Options, APathIsAskedForByTheNameThatIsPrinted) {
  for (const CpuPath path : {CpuPath::automatic, CpuPath::amx, CpuPath::avx512_bf16, CpuPath::avx512,
                             CpuPath::avx2, CpuPath::portable})
    EXPECT_EQ(generate({"--cpu-path", std::string(name_of(path))}).engine.backend.cpu_path, path);
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
                                   {"--max-tokens", "-1"},
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
                                   {"--logprobs", "1025"},
                                   {"--n", "0"},
                                   {"--n", "257"},
                                   {"--logprobs", "-1"},
                                   {"--seed", "-1"},
                                   {"--seed", "18446744073709551616"},
                                   {"--kv-memory", "0"},
                                   {"--kv-memory", "4X"},
                                   {"--stop", ""}};
  for (const Args& args : wrong)
    EXPECT_EQ(generate_refusal(args).code(), ExitCode::usage) << args[0] << " " << args[1];
}

TEST(Options, AModelAndOneSourceOfPromptsAreNeeded) {
  expect_mentions(refusal({"generate", "--prompt", "p"}).what(), "no model was given");
  expect_mentions(refusal({"generate", "--model", "m"}).what(), "no prompt");
  expect_mentions(generate_refusal({"--in", "f"}).what(), "both --prompt and --in");
  expect_mentions(refusal({"tokenize"}).what(), "no model was given");
  expect_mentions(refusal({"tokenize", "--model", "m", "--chat", "--decode"}).what(), "--chat goes neither");
}

GenerateOptions run(Args extra) {
  Args args{"generate", "--model", "m", "--run-dir", "d"};
  args.insert(args.end(), extra.begin(), extra.end());
  return options_of<parse_generate>(args);
}

TEST(Options, ARunDirectoryHasOptionsOfItsOwn) {
  const GenerateOptions plain = run({"--in", "a"});
  EXPECT_EQ(plain.run_dir, "d");
  EXPECT_EQ(plain.sync_interval, std::chrono::seconds(5));
  EXPECT_EQ(plain.takeover_after, std::chrono::seconds(30));
  EXPECT_EQ(plain.deadline, std::chrono::seconds(60));
  EXPECT_EQ(plain.start_deadline, std::chrono::seconds(300));
  EXPECT_EQ(plain.shard.count, 1U);
  EXPECT_EQ(plain.fail_on, 0);
  const GenerateOptions given =
      run({"--in", "a", "b.gz", "--in", "c", "--sync-interval", "0.5s", "--takeover-after", "2m",
           "--retry-errors", "--shard", "2/16", "--fail-on", "2.5%"});
  EXPECT_EQ(given.in, (Args{"a", "b.gz", "c"}));
  EXPECT_EQ(given.sync_interval, std::chrono::milliseconds(500));
  EXPECT_EQ(given.takeover_after, std::chrono::minutes(2));
  EXPECT_TRUE(given.retry_errors);
  EXPECT_EQ(given.shard.index, 2U);
  EXPECT_EQ(given.shard.count, 16U);
  EXPECT_EQ(given.fail_on, 2.5);
  EXPECT_EQ(run({"--in", "a", "--fail-on", "none"}).fail_on, 100);
}

TEST(Options, OfARunDirectoryThatDoNotFitAreRefused) {
  const auto refused = [](Args extra) {
    Args args{"generate", "--model", "m", "--run-dir", "d"};
    args.insert(args.end(), extra.begin(), extra.end());
    const Error error = refusal(args);
    EXPECT_EQ(error.code(), ExitCode::usage);
    return std::string(error.what());
  };
  expect_mentions(refused({"--prompt", "p"}), "--run-dir does not go with --prompt");
  expect_mentions(refused({"--in", "a", "--out", "o"}), "--run-dir does not go with --out");
  for (const char* shard : {"3", "3/3", "-1/3", "1/0", "/", "1/3x", "1/"})
    expect_mentions(refused({"--in", "a", "--shard", shard}), "--shard (");
  for (const char* limit : {"some", "5", "101%", "-1%", "%", "nan%"})
    expect_mentions(refused({"--in", "a", "--fail-on", limit}), "--fail-on (");
  for (const char* time : {"", "s", "5d", "-1s", "1e9"})
    expect_mentions(refused({"--in", "a", "--sync-interval", time}), "is not a time");
  expect_mentions(refused({"--in", "a", "--deadline", "2s"}), "is below 3 s");
  expect_mentions(refused({"--in", "a", "--start-deadline", "2s"}), "--start-deadline (2s) is below 3 s");
  expect_mentions(refused({"--in", "a", "--takeover-after", "3.9s"}), "--takeover-after (3.9s) is below 4 s");
  expect_mentions(generate_refusal({"--retry-errors"}).what(), "--retry-errors needs --run-dir");
  expect_mentions(generate_refusal({"--exit-zero-on-stop"}).what(), "--exit-zero-on-stop needs --run-dir");
}

TEST(Options, FollowTakesOnePipeAndNothingThatNeedsTheWholeInput) {
  const auto options = [](Args args) {
    args.insert(args.begin(), {"generate", "--model", "m", "--follow"});
    return args;
  };
  EXPECT_TRUE(options_of<parse_generate>(options({"--in", "-"})).follow);
  for (const Args& args : {Args{"--prompt", "a"}, Args{"--in", "a", "b"}, Args{"--in", "-", "--run-dir", "r"},
                           Args{"--in", "-", "--shard", "0/2"}})
    EXPECT_THROW(read_command_line(options(args)), Error) << args.back();
}

TEST(Options, RanksShareAGpuThroughTheHostOrWhereNcclIsAskedTo) {
  const auto share = [](const char* transport, bool nccl_shares) {
    Launch launch;
    launch.nccl_shares_gpus = nccl_shares;
    const auto command = std::ranges::find(commands(), "doctor", &CommandRow::name);
    const Args args{"--transport", transport};
    return std::get<1>(read_options<parse_doctor>(*command, args, launch)).engine.share_gpus;
  };
  EXPECT_TRUE(share("host", false) && share("nccl", true));
  EXPECT_FALSE(share("nccl", false) || share("auto", true));
}

TEST(Options, DoctorIsToldWhatGenerateWillBe) {
  const auto given = options_of<parse_doctor>(
      Args{"doctor", "--model", "m", "--tp", "2", "--run-dir", "r", "--kv-memory", "1G", "--dtype", "fp32",
           "--threads", "3", "--transport", "host", "--allow-cross-node-tp", "--quick"});
  EXPECT_EQ(given.engine.model, "m");
  EXPECT_EQ(given.engine.tensor_size, 2);
  EXPECT_EQ(given.engine.kv_memory, size_t{1} << 30);
  EXPECT_EQ(given.engine.dtype, DType::fp32);
  EXPECT_TRUE(given.engine.share_gpus);
  EXPECT_EQ(given.run_dir, "r");
  EXPECT_EQ(given.engine.threads, 3);
  EXPECT_TRUE(given.allow_cross_node_tp && given.quick);

  const auto line = options_of<parse_doctor>(Args{"doctor",
                                                  "--model",
                                                  "m",
                                                  "--in",
                                                  "a",
                                                  "b.gz",
                                                  "--out",
                                                  "o",
                                                  "--max-model-len",
                                                  "64",
                                                  "--block-size",
                                                  "16",
                                                  "--max-num-seqs",
                                                  "8",
                                                  "--max-num-batched-tokens",
                                                  "99",
                                                  "--temperature",
                                                  "0.5",
                                                  "--shard",
                                                  "1/2",
                                                  "--eager",
                                                  "--stop-before",
                                                  "9s",
                                                  "--sync-interval",
                                                  "1s",
                                                  "--load",
                                                  "random",
                                                  "--repro",
                                                  "batch",
                                                  "--fail-on",
                                                  "5%"});
  EXPECT_EQ(line.in, (std::vector<std::string>{"a", "b.gz"}));
  EXPECT_EQ(line.engine.max_model_len, 64U);
  EXPECT_EQ(line.engine.block_size, 16U);
  EXPECT_EQ(line.engine.max_num_seqs, 8U);
  EXPECT_EQ(line.time_limit.stop_before, std::chrono::seconds(9));
  expect_mentions(refusal({"doctor", "--run-dir", "r", "--out", "o"}).what(),
                  "--run-dir does not go with --out");

  const auto nothing = options_of<parse_doctor>(Args{"doctor"});
  EXPECT_TRUE(nothing.engine.model.empty() && !nothing.run_dir && !nothing.quick);
  EXPECT_FALSE(nothing.allow_cross_node_tp);
  EXPECT_TRUE(generate({"--allow-cross-node-tp"}).allow_cross_node_tp);
}

TEST(Options, StatusAndMergeTakeWords) {
  const auto status = options_of<parse_status>(Args{"status", "runs/r1", "--rc"});
  EXPECT_EQ(status.run_dirs, std::vector<std::filesystem::path>{"runs/r1"});
  EXPECT_TRUE(status.rc);
  EXPECT_FALSE(status.watch);
  const auto merge = options_of<parse_merge>(Args{"merge", "out", "r.0", "r.1"});
  EXPECT_EQ(merge.out, "out");
  EXPECT_EQ(merge.run_dirs.size(), 2U);
  const auto both = options_of<parse_status>(Args{"status", "a", "b", "--run-dir", "c", "--json"});
  EXPECT_EQ(both.run_dirs, (std::vector<std::filesystem::path>{"a", "b", "c"}));
  EXPECT_TRUE(both.json);
  expect_mentions(refusal({"status"}).what(), "takes run directories");
  expect_mentions(refusal({"merge", "out"}).what(), "merge takes OUT");
  expect_mentions(refusal({"status", "d", "--r"}).what(), "unknown option --r");
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
  const std::string text = std::get<Notice>(read_command_line(Args{"generate", "--help"})).text;
  for (const char* part :
       {"--model DIR", "--block-size N (=256)", "--logprobs [=N(=0)]", "--repro LEVEL (=auto)",
        "mpirun -n 4 maniple generate", "--no-prefix-cache", "--config FILE", "--stop TEXT"})
    expect_mentions(text, part);
  expect_mentions(std::get<Notice>(read_command_line(Args{"--help"})).text, "tokenize");
  expect_mentions(std::get<Notice>(read_command_line(Args{"--version"})).text, "maniple ");
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
