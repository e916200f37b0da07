#include "../options/parsing.hpp"

#include <launch/tools/options/bench_options.hpp>

#include <gmock/gmock.h>

namespace maniple {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BenchOptions bench(const Args& more) {
  Args args{"bench"};
  args.insert(args.end(), more.begin(), more.end());
  return options_of<parse_bench>(args);
}
Error bench_refusal(const Args& more) {
  Args args{"bench"};
  args.insert(args.end(), more.begin(), more.end());
  const Error error = refusal(args);
  EXPECT_EQ(error.code(), ExitCode::usage);
  return error;
}

TEST(BenchOptions, HaveTheDefaultsOfTheHelp) {
  const BenchOptions options = bench({"comm"});
  EXPECT_EQ(options.bench, BenchKind::comm);
  EXPECT_EQ(options.warmup, 1);
  EXPECT_EQ(options.repeats, 6);
  EXPECT_EQ(options.ops.size(), 5u);
  EXPECT_EQ(options.groups.size(), group_axes.size());
  EXPECT_EQ(options.begin, 8u);
  EXPECT_EQ(options.end, 128u << 20);
  EXPECT_EQ(options.factor, 2u);
  EXPECT_TRUE(options.check);
  EXPECT_FALSE(options.engine.dtype || options.json || options.require_valid);
  EXPECT_EQ(options.given.at("command"), "bench comm");
}

TEST(BenchOptions, TakeListsAndSizes) {
  const BenchOptions options =
      bench({"comm", "--op", "broadcast,all_reduce,broadcast", "--group=world", "--begin", "1K", "--end",
             "4KB", "--factor", "4", "--dtype", "bf16", "--no-check", "--tp", "2"});
  EXPECT_THAT(options.ops, ElementsAre(CommOp::broadcast, CommOp::all_reduce));
  EXPECT_THAT(options.groups, ElementsAre(GroupAxis::world));
  EXPECT_EQ(options.begin, 1024u);
  EXPECT_EQ(options.end, 4000u);
  EXPECT_EQ(options.factor, 4u);
  EXPECT_EQ(options.engine.dtype, DType::bf16);
  EXPECT_FALSE(options.check);
  EXPECT_EQ(options.engine.tensor_size, 2);
  EXPECT_EQ(bench({"load", "--model", "m", "--cold"}).engine.model, "m");
}

TEST(BenchOptions, KernelsTakeTensorSizesInPlaceOfTp) {
  EXPECT_THAT(bench({"kernels", "--model", "m", "--shapes-of-tp", "1,4,1,2"}).shapes_of_tp,
              ElementsAre(1u, 4u, 2u));
  EXPECT_TRUE(bench({"kernels", "--model", "m", "--tp", "2", "--seed", "3"}).shapes_of_tp.empty());
  EXPECT_STREQ(bench_refusal({"kernels", "--model", "m", "--tp", "2", "--shapes-of-tp", "2"}).what(),
               "both --tp and --shapes-of-tp were given");
  EXPECT_STREQ(bench_refusal({"load", "--model", "m", "--shapes-of-tp", "2"}).what(),
               "--shapes-of-tp does not go with bench load");
  EXPECT_THAT(bench_refusal({"kernels", "--model", "m", "--shapes-of-tp", "1,x"}).what(),
              HasSubstr("--shapes-of-tp"));
}

TEST(BenchOptions, AnUnknownBenchNamesWhatIsPossible) {
  const std::string all =
      "maniple bench throughput, or maniple bench latency, or maniple bench comm, or maniple bench load, or "
      "maniple bench kernels";
  EXPECT_STREQ(bench_refusal({"speed"}).what(), "unknown bench speed");
  EXPECT_STREQ(bench_refusal({"speed", "--repeats", "many"}).what(), "unknown bench speed")
      << "the word comes first";
  EXPECT_EQ(bench_refusal({"speed"}).remedy(), all);
  EXPECT_EQ(bench_refusal({"com"}).remedy(), "did you mean comm?");
  EXPECT_EQ(bench_refusal({}).remedy(), all);
  EXPECT_THAT(bench_refusal({"comm", "load"}).what(), HasSubstr("\"load\" follows comm"));
}

TEST(BenchOptions, AnUnknownWordOfAListIsNamedWithItsOption) {
  const Error error = bench_refusal({"comm", "--op", "all_reduce,all_reduse"});
  EXPECT_STREQ(
      error.what(),
      "--op (all_reduse) must be some of: all_reduce, all_gather, reduce_scatter, broadcast, sendrecv");
  EXPECT_EQ(error.remedy(), "did you mean all_reduce?");
  EXPECT_STREQ(
      bench_refusal({"comm", "--group", "pipelines"}).what(),
      "--group (pipelines) must be some of: tensor, context, expert, expert_tensor, pipeline, data, world");
  for (const char* list : {"", ",", "all_reduce,"})
    EXPECT_THAT(bench_refusal({"comm", "--op", list}).what(), HasSubstr("--op () must be")) << list;
}

TEST(BenchOptions, AnUnknownUnitIsNamedWithItsOption) {
  EXPECT_STREQ(bench_refusal({"comm", "--begin", "8X"}).what(), "--begin: \"8X\" is not a number of bytes");
  EXPECT_STREQ(bench_refusal({"comm", "--end", "2T"}).what(), "--end (2T) is above 1T");
  EXPECT_STREQ(bench_refusal({"comm", "--end", "4"}).what(), "--end (4) is below --begin (8)");
  EXPECT_STREQ(bench_refusal({"comm", "--repeats", "0"}).what(),
               "--repeats (0) must be a whole number from 1 to 1000");
  EXPECT_THAT(bench_refusal({"comm", "--factor", "1"}).what(), HasSubstr("--factor (1)"));
}

TEST(BenchOptions, EachBenchRefusesThoseOfTheOther) {
  EXPECT_STREQ(bench_refusal({"load", "--model", "m", "--no-check"}).what(),
               "--no-check does not go with bench load");
  EXPECT_STREQ(bench_refusal({"comm", "--model", "m"}).what(), "--model does not go with bench comm");
  EXPECT_EQ(bench_refusal({"comm", "--cold"}).remedy(), "leave it out: it belongs to bench load");
  EXPECT_STREQ(bench_refusal({"load"}).what(), "no model was given");
}

TEST(BenchOptions, ServingOnesTakeWhatGenerateTakes) {
  const BenchOptions options = bench({"throughput",
                                      "--model",
                                      "m",
                                      "--lengths",
                                      "uniform:64-512/16-256",
                                      "--num-prompts",
                                      "20",
                                      "--prefix",
                                      "32",
                                      "--seed",
                                      "7",
                                      "--load",
                                      "random",
                                      "--max-num-seqs",
                                      "16",
                                      "--max-num-batched-tokens",
                                      "64",
                                      "--max-model-len",
                                      "128",
                                      "--kv-memory",
                                      "1G",
                                      "--no-prefix-cache",
                                      "--schedule",
                                      "prefill-first",
                                      "--record",
                                      "r.h5",
                                      "--json",
                                      "r.json"});
  EXPECT_EQ(options.lengths.prompt.low, 64u);
  EXPECT_EQ(options.lengths.prompt.high, 512u);
  EXPECT_EQ(options.lengths.output.low, 16u);
  EXPECT_EQ(options.lengths.output.high, 256u);
  EXPECT_EQ(options.num_prompts, 20u);
  EXPECT_EQ(options.prefix, 32u);
  EXPECT_EQ(options.engine.seed, 7u);
  EXPECT_TRUE(options.engine.random_weights);
  EXPECT_EQ(options.engine.max_num_seqs, 16u);
  EXPECT_EQ(options.engine.max_model_len, 128u);
  EXPECT_FALSE(options.engine.prefix_cache);
  EXPECT_EQ(options.record, "r.h5");
  EXPECT_THAT(bench({"latency", "--model", "m", "--batch-size", "1,8,32,8"}).batch_sizes,
              ElementsAre(1u, 8u, 32u));
  EXPECT_EQ(bench({"latency", "--model", "m", "--lengths", "sharegpt"}).lengths.kind,
            Lengths::Kind::sharegpt);
  EXPECT_EQ(bench({"latency", "--model", "m", "--lengths", "a/b:c.csv"}).lengths.file, "a/b:c.csv");
}

TEST(BenchOptions, BadLengthsSayWhatIsPossible) {
  for (const char* text :
       {"fixed:0/1", "fixed:1/0", "fixed:1", "fixed:1-2/3", "fixed:/", "fixed:1/2/3", "uniform:9-3/1-1",
        "uniform:0-3/1-1", "uniform:1-2-3/1-1", "fixed:-1/1", "fixed:1/999999999999", "", "128/128"}) {
    const Error error = bench_refusal({"throughput", "--model", "m", "--lengths", text});
    EXPECT_EQ(error.what(),
              fmt::format("--lengths ({}) must be fixed:128/128, uniform:64-512/16-256, sharegpt or FILE.csv",
                          text));
  }
  EXPECT_EQ(bench_refusal({"throughput", "--model", "m", "--lengths", "fixd:1/1"}).remedy(),
            "did you mean fixed?");
  EXPECT_EQ(bench_refusal({"throughput", "--model", "m", "--lengths", "fixed:0/1"}).remedy(),
            "--lengths fixed:128/128: tokens of each prompt and output, 1 or more");
}

TEST(BenchOptions, AnOptionOfSeveralBenchesNamesThemAll) {
  EXPECT_EQ(bench_refusal({"comm", "--lengths", "fixed:1/1"}).remedy(),
            "leave it out: it belongs to bench throughput, latency");
  EXPECT_STREQ(bench_refusal({"throughput", "--model", "m", "--batch-size", "1"}).what(),
               "--batch-size does not go with bench throughput");
  EXPECT_STREQ(bench_refusal({"latency", "--model", "m", "--num-prompts", "1"}).what(),
               "--num-prompts does not go with bench latency");
  EXPECT_STREQ(bench_refusal({"load", "--model", "m", "--max-num-seqs", "256"}).what(),
               "--max-num-seqs does not go with bench load");
  EXPECT_STREQ(bench_refusal({"latency", "--model", "m", "--batch-size", "1,0"}).what(),
               "--batch-size (0) must be a whole number from 1 to 1000000");
}

TEST(BenchOptions, ThoseOfOtherBenchesAreNotAmongTheGivenOnes) {
  const GivenOptions given = bench({"comm"}).given;
  EXPECT_FALSE(given.contains("lengths") || given.contains("max-num-seqs"));
  EXPECT_EQ(bench({"latency", "--model", "m"}).given.at("lengths"), "fixed:128/128");
}

TEST(BenchOptions, RecordOffWritesNone) {
  EXPECT_FALSE(bench({"comm", "--record", "off"}).record.has_value());
}

TEST(BenchOptions, PlacesThatContradictEachOtherAreRefused) {
  EXPECT_STREQ(bench_refusal({"throughput", "--model", "m", "--in", "a", "--lengths", "fixed:1/1"}).what(),
               "both --lengths and --in were given");
  EXPECT_STREQ(bench_refusal({"throughput", "--model", "m", "--in", "a", "--prefix", "1"}).what(),
               "--prefix does not go with --in");
  EXPECT_STREQ(bench_refusal({"comm", "--record", "./a", "--json", "a"}).what(),
               "--record and --json are the same file");
  EXPECT_STREQ(bench_refusal({"throughput"}).what(), "no model was given");
}

}  // namespace
}  // namespace maniple
