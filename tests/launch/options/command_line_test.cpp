#include "parsing.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace maniple {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

std::string printed(const Args& args) { return std::get<Notice>(read_command_line(args)).text; }

class Files : public testing::Test {
 protected:
  Files() { fs::create_directory(folder_); }
  ~Files() override { fs::remove_all(folder_); }
  std::string file(const char* name, const std::string& content) const {
    std::ofstream(folder_ / name) << content;
    return folder_ / name;
  }
  const fs::path folder_ = fs::path(::testing::TempDir()) / "maniple_command_line";
};

TEST(CommandLine, HelpAndVersionAreThereForEveryCommandInBothSpellings) {
  for (const char* command :
       {"generate", "doctor", "bench", "tokenize", "convert", "status", "merge", "report", "scaling"}) {
    EXPECT_EQ(printed({command, "-h"}), printed({command, "--help"}));
    EXPECT_EQ(printed({command, "-V"}), printed({"--version"}));
    EXPECT_EQ(printed({command, "--version"}), printed({"-V"}));
  }
  EXPECT_EQ(printed({"-h"}), printed({"--help"}));
}

TEST(CommandLine, TheVersionTellsWhatTheProgramWasBuiltWith) {
  const std::string text = printed({"--version"});
  EXPECT_THAT(text, testing::MatchesRegex("maniple [0-9.]+\n(.|\n)*"));
  for (const char* part :
       {"\ncommit:    ", "\ncompiler:  ", "\nMPI:       ", "\nCUDA:      ", "\nNCCL:      ", "portable"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(CommandLine, ANegativeNumberIsAValueAndAnUnknownLetterIsNoOption) {
  EXPECT_EQ(generate({"--top-k", "-1"}).sampling.top_k, -1);
  EXPECT_STREQ(refusal({"generate", "-tp", "2"}).what(), "unknown option -tp");
  EXPECT_EQ(refusal({"generate", "-tp", "2"}).remedy(), "did you mean --tp?");
}

TEST_F(Files, WhereAnOptionWasMeantAreNamedWithIt) {
  const std::string input = file("prompts.txt", "{}\n");
  const Error error = refusal({"generate", input});
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_EQ(error.remedy(), "did you mean --in " + input + "?");
  EXPECT_EQ(refusal({"generate", "later.jsonl"}).remedy(), "did you mean --in later.jsonl?");
  file("config.json", "{}");
  EXPECT_EQ(refusal({"tokenize", folder_}).remedy(), "did you mean --model " + folder_.string() + "?");
  EXPECT_THAT(refusal({"generate", "words"}).remedy(), HasSubstr("into quotes"));
}

TEST_F(Files, OfOptionsMayHaveQuotedValues) {
  const std::string path =
      file("run.conf", "stop = \"a # b \"\nstop='c'\nstop = it's\nstop = \"\nrun-dir = '/a b'\n");
  const GenerateOptions options =
      options_of<parse_generate>(Args{"generate", "--model", "m", "--in", "i", "--config", path});
  EXPECT_EQ(options.sampling.stop, (Args{"a # b ", "c", "it's", "\""}));
  EXPECT_EQ(options.run_dir, "/a b");
}

TEST(CommandLine, WhatIsNoNumberIsRefused) {
  for (const char* number : {"nan", "inf", "-inf", "NaN", "infinity", "1e999"}) {
    const auto refused = [&](const char* option, const std::string& value) {
      EXPECT_EQ(generate_refusal({option, value}).code(), ExitCode::usage) << option << ' ' << value;
    };
    for (const char* option :
         {"--temperature", "--top-p", "--min-p", "--gpu-memory-utilization", "--walltime", "--stop-before",
          "--deadline", "--kv-memory", "--top-k", "--seed"})
      refused(option, number);
    refused("--fail-on", std::string(number) + "%");
    refused("--deadline", std::string(number) + "h");
  }
  EXPECT_STREQ(generate_refusal({"--temperature", "nan"}).what(), "--temperature (nan) is not a number");
  EXPECT_STREQ(generate_refusal({"--top-p", "-inf"}).what(), "--top-p (-inf) is not a number");
}

TEST(CommandLine, AWalltimeIsWrittenAsForSlurmToo) {
  using namespace std::chrono_literals;
  const auto walltime = [](const char* text) { return *generate({"--walltime", text}).time_limit.walltime; };
  EXPECT_EQ(walltime("04:00:00"), 4h);
  EXPECT_EQ(walltime("1-12:30:05"), 36h + 30min + 5s);
  EXPECT_EQ(walltime("90:30"), 90min + 30s);
  EXPECT_EQ(walltime("2-6"), 54h);
  EXPECT_EQ(walltime("0-00:10"), 10min);
  EXPECT_EQ(walltime("1.5h"), 90min);
  for (const char* text :
       {"1:2:3:4", "-04:00:00", "04:00:", ":30", "1-", "1-2-3", "a:b", "4:00h", "1-12:00:00:00"})
    EXPECT_THAT(generate_refusal({"--walltime", text}).what(), HasSubstr("is not a time")) << text;
}

TEST(CommandLine, QuietIsASwitch) {
  EXPECT_FALSE(generate({}).quiet);
  EXPECT_TRUE(generate({"--quiet"}).quiet && generate({"--quiet"}).overwrite.quiet);
}

}  // namespace
}  // namespace maniple
