#include "parsing.hpp"

#include <gmock/gmock.h>

namespace maniple {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BenchOptions bench(const Args& more) {
  Args args{"bench"};
  args.insert(args.end(), more.begin(), more.end());
  return std::get<BenchOptions>(parse_arguments(args));
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
  EXPECT_EQ(options.groups.size(), 3u);
  EXPECT_EQ(options.begin, 8u);
  EXPECT_EQ(options.end, 128u << 20);
  EXPECT_EQ(options.factor, 2u);
  EXPECT_TRUE(options.check);
  EXPECT_FALSE(options.dtype || options.json || options.require_valid);
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
  EXPECT_EQ(options.dtype, DType::bf16);
  EXPECT_FALSE(options.check);
  EXPECT_EQ(options.engine.tensor_size, 2);
  EXPECT_EQ(bench({"load", "--model", "m", "--cold"}).engine.model, "m");
}

TEST(BenchOptions, AnUnknownBenchNamesWhatIsPossible) {
  EXPECT_STREQ(bench_refusal({"throughput"}).what(), "unknown bench throughput");
  EXPECT_EQ(bench_refusal({"throughput"}).remedy(), "maniple bench comm, or maniple bench load");
  EXPECT_EQ(bench_refusal({"com"}).remedy(), "did you mean comm?");
  EXPECT_EQ(bench_refusal({}).remedy(), "maniple bench comm, or maniple bench load");
  EXPECT_THAT(bench_refusal({"comm", "load"}).what(), HasSubstr("\"load\" follows comm"));
}

TEST(BenchOptions, AnUnknownWordOfAListIsNamedWithItsOption) {
  const Error error = bench_refusal({"comm", "--op", "all_reduce,all_reduse"});
  EXPECT_STREQ(
      error.what(),
      "--op (all_reduse) must be some of: all_reduce, all_gather, reduce_scatter, broadcast, sendrecv");
  EXPECT_EQ(error.remedy(), "did you mean all_reduce?");
  EXPECT_STREQ(bench_refusal({"comm", "--group", "pipeline"}).what(),
               "--group (pipeline) must be some of: tensor, data, world");
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

}  // namespace
}  // namespace maniple
