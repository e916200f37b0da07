#include "../options/parsing.hpp"

#include <launch/tools/tools.hpp>

#include <gmock/gmock.h>

namespace maniple {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ReportOptions report(Args args) {
  args.insert(args.begin(), "report");
  return options_of<parse_report>(args);
}

TEST(ReportOptions, TakeRunsOrTwoToCompare) {
  EXPECT_THAT(report({"r1", "r2", "--ranks"}).runs, ElementsAre("r1", "r2"));
  const ReportOptions both = report({"--compare", "a", "b", "--force", "--json", "-"});
  EXPECT_TRUE(both.compare && both.force);
  EXPECT_THAT(both.runs, ElementsAre("a", "b"));
  EXPECT_EQ(both.json, "-");
  EXPECT_STREQ(refusal({"report"}).what(), "report takes runs");
  EXPECT_STREQ(refusal({"report", "--compare", "a"}).what(), "--compare takes two runs");
  EXPECT_STREQ(refusal({"report", "c", "--compare", "a", "b"}).what(), "--compare takes two runs");
  EXPECT_STREQ(refusal({"report", "a", "--force"}).what(), "--force needs --compare");
}

TEST(ReportOptions, RequireANumberOrAShareOfTheOther) {
  const Requirement share =
      report({"--compare", "a", "b", "--require", "out_tok_per_s>=0.98x"}).requirements.at(0);
  EXPECT_EQ(share.metric, "out_tok_per_s");
  EXPECT_TRUE(share.at_least && share.relative);
  EXPECT_DOUBLE_EQ(share.bound, 0.98);
  const Requirement most = report({"a", "--require", "step_p50_ms <= 1e2"}).requirements.at(0);
  EXPECT_FALSE(most.at_least || most.relative);
  EXPECT_DOUBLE_EQ(most.bound, 100);
  for (const char* wrong : {"out_tok_per_s", "out>0.9", ">=1", "m>=", "m>=1y", "m>=1e", "m>=1x2"})
    EXPECT_EQ(refusal({"report", "a", "--require", wrong}).code(), ExitCode::usage) << wrong;
  EXPECT_THAT(refusal({"report", "a", "--require", "m>=0.9x"}).what(), HasSubstr("relative"));
}

}  // namespace
}  // namespace maniple
