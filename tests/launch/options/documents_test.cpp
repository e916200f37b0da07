#include <launch/commands.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace maniple {
namespace {

using Args = std::vector<std::string>;
using Names = std::set<std::string>;

using testing::HasSubstr;

std::string printed_by(const Args& args) { return std::get<Notice>(read_command_line(args)).text; }

// The first group of each match.
Names found(const std::string& text, const char* pattern) {
  const std::regex form(pattern, std::regex::multiline);
  Names names;
  for (std::sregex_iterator match(text.begin(), text.end(), form), end; match != end; ++match)
    names.insert(match->str(1));
  return names;
}

class Documents : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Of, Documents,
                         testing::Values("generate", "doctor", "bench", "tokenize", "convert", "status",
                                         "merge", "report", "scaling"),
                         [](const auto& of) { return of.param; });

TEST_P(Documents, HaveTheOptionsOfTheHelp) {
  const Names in_help = found(printed_by({GetParam(), "--help"}), R"(^  (?:-. \[ )?(--[a-z-]+))");
  EXPECT_GE(in_help.size(), 4U);
  const std::string page = std::regex_replace(printed_by({GetParam(), "--man"}), std::regex(R"(\\-)"), "-");
  EXPECT_EQ(found(page, R"(^\.BR (?:-. ", " )?(--[a-z-]+))"), in_help);
  const std::string part = printed_by({GetParam(), "--completion"});
  EXPECT_EQ(found(part.substr(0, part.find("case $previous")), R"((--[a-z-]+))"), in_help);
  EXPECT_THAT(printed_by({"--completion"}), HasSubstr(part));
}

TEST_P(Documents, KeepEveryLineOfText) {
  std::string page = std::regex_replace(printed_by({GetParam(), "--man"}), std::regex(R"(\\-)"), "-");
  const Names requests = found(page, R"(^(\.[A-Za-z]+))");
  for (const std::string& request : requests)
    EXPECT_TRUE(Names({".TH", ".SH", ".SS", ".B", ".BR", ".TP", ".PP", ".EX", ".EE"}).contains(request))
        << request;
}

TEST(CompletionScript, KnowsChoicesAndPlaces) {
  const std::string script = printed_by({"generate", "--completion"});
  for (const char* part : {"--dtype) values='auto bf16 fp16 fp32' ;;", "--model|--run-dir) kind=directory ;;",
                           "--kv-cache-dtype) values='auto fp8 bf16 fp16 fp32' ;;",
                           "--schedule) values='mixed prefill-first' ;;"})
    EXPECT_THAT(script, HasSubstr(part));
  EXPECT_THAT(printed_by({"status", "--completion"}), HasSubstr("words=yes"));
  EXPECT_THAT(printed_by({"bench", "--completion"}),
              HasSubstr("words='throughput latency comm load kernels'"));
}

TEST(OverviewPage, LeadsToThoseOfTheCommands) {
  const std::string page = printed_by({"--man"});
  for (const char* part : {".TH MANIPLE 1", "maniple\\-generate (1),", "maniple\\-scaling (1)\n", ".B 75"})
    EXPECT_THAT(page, HasSubstr(part));
}

}  // namespace
}  // namespace maniple
