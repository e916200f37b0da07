#include <launch/commands/commands.hpp>

#include "../run_directory/run_directory_testing.hpp"

namespace maniple {
namespace {

using testing::content_of;
using Kind = JournalRecord::Kind;
namespace fs = std::filesystem;

TEST(Merge, LeavesNoErrorsOfAnEarlierOne) {
  const testing::Scratch scratch;
  RunDirectory::Settings settings;
  settings.path = scratch.path() / "run";
  settings.manifest = testing::manifest_of(2);
  settings.manifest.set("shard", "0/1");
  settings.me = this_process("here", "");
  const fs::path out = scratch.path() / "out", errors = scratch.path() / "out.errors";
  const auto merged = [&](Kind second) {
    {
      RunDirectory run(settings);
      run.record({Kind::finished, 0, "zero"});
      run.record({second, 1, "one"});
      run.finish({RunState::complete, 0}, "{}");
    }
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(run_merge({out, {settings.path}}), ExitCode::complete);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("2 requests of 1 shard"), std::string::npos);
  };
  merged(Kind::failed);
  EXPECT_EQ(content_of(out), "zero\n");
  EXPECT_EQ(content_of(errors), "one\n");
  merged(Kind::finished);
  EXPECT_EQ(content_of(out), "zero\none\n");
  EXPECT_FALSE(fs::exists(errors));
}

}  // namespace
}  // namespace maniple
