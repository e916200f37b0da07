#include <launch/commands/commands.hpp>

#include "../run_directory/run_directory_testing.hpp"

namespace maniple {
namespace {

using testing::content_of;
using Kind = JournalRecord::Kind;
namespace fs = std::filesystem;

TEST(Merge, LeavesNoErrorsOfAnEarlierOne) {
  const testing::Scratch scratch;
  RunDirectory::Options settings;
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
    EXPECT_EQ(run_merge({out, {.asked = true}, {settings.path}}), ExitCode::complete);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("2 requests of 1 shard"), std::string::npos);
  };
  merged(Kind::failed);
  EXPECT_EQ(content_of(out), "zero\n");
  EXPECT_EQ(content_of(errors), "one\n");
  merged(Kind::finished);
  EXPECT_EQ(content_of(out), "zero\none\n");
  EXPECT_FALSE(fs::exists(errors));
}

struct Refused {
  ExitCode code;
  std::string text;
};
Refused refused(const MergeOptions& options) {
  try {
    run_merge(options);
  } catch (const Error& error) {
    return {error.code(), fmt::format("{}|{}|{}", error.what(), error.why(), error.remedy())};
  }
  return {ExitCode::complete, "was merged"};
}

fs::path finished_run(const fs::path& path, const char* shard, const char* model = "m") {
  RunDirectory::Options settings;
  settings.path = path;
  settings.manifest = testing::manifest_of(2);
  settings.manifest.set("model", model);
  settings.manifest.set("shard", shard);
  settings.me = this_process("here", "");
  settings.shard = {shard[0] == '1' ? 1U : 0U, shard[2] == '2' ? 2U : 1U};
  RunDirectory run(settings);
  for (uint64_t request = 0; request < 2; ++request)
    if (settings.shard.holds(request)) run.record({Kind::finished, request, "line"});
  run.finish({RunState::complete, 0}, "{}");
  return path;
}

TEST(Merge, LeavesAFileWithContentAloneUnlessItMayGo) {
  const testing::Scratch scratch;
  const fs::path run = finished_run(scratch.path() / "run", "0/1"), out = scratch.path() / "out";
  for (const fs::path& file : {out, fs::path(out.string() + ".errors")}) {
    testing::write_content(file, "precious");
    const Refused refusal = refused({out, {}, {run}});
    EXPECT_EQ(refusal.code, ExitCode::input);
    EXPECT_NE(refusal.text.find(file.string() + " is there already"), std::string::npos) << refusal.text;
    EXPECT_NE(refusal.text.find("--overwrite"), std::string::npos) << refusal.text;
    EXPECT_EQ(content_of(file), "precious");
    fs::remove(file);
  }
  testing::write_content(out, "");
  EXPECT_EQ(run_merge({out, {}, {run}}), ExitCode::complete);
  EXPECT_EQ(run_merge({out, {.requeued = true}, {run}}), ExitCode::complete) << "what the job itself left";
}

TEST(Merge, WritesIntoADeviceAndDoesNotReplaceIt) {
  const testing::Scratch scratch;
  EXPECT_EQ(run_merge({"/dev/null", {}, {finished_run(scratch.path() / "run", "0/1")}}), ExitCode::complete);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(Merge, WithoutOutSaysSo) {
  const testing::Scratch scratch;
  const fs::path run = finished_run(scratch.path() / "run", "0/1");
  const Refused refusal = refused({run, {}, {run}});
  EXPECT_EQ(refusal.code, ExitCode::usage);
  EXPECT_NE(refusal.text.find("OUT is missing"), std::string::npos) << refusal.text;
}

TEST(Merge, RefusesInItsOwnWords) {
  const testing::Scratch scratch;
  const fs::path out = scratch.path() / "out", one = finished_run(scratch.path() / "one", "0/2"),
                 other = finished_run(scratch.path() / "other", "1/2", "another");
  fs::create_directories(scratch.path() / "broken");
  testing::write_content(scratch.path() / "broken" / "manifest.json", "[]");
  for (const auto& [run_dirs, words] : {std::pair<std::vector<fs::path>, const char*>{
                                            {one, other}, "belong to two runs:\n    model: m there"},
                                        {{scratch.path() / "broken"}, "is not a JSON object"},
                                        {{one}, "shard 1/2 is missing"}}) {
    const Refused refusal = refused({out, {}, run_dirs});
    EXPECT_EQ(refusal.code, ExitCode::input);
    EXPECT_NE(refusal.text.find(words), std::string::npos) << refusal.text;
    EXPECT_EQ(refusal.text.find("--run-dir"), std::string::npos) << refusal.text;
    EXPECT_FALSE(fs::exists(out));
  }
}

}  // namespace
}  // namespace maniple
