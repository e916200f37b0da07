#include "../../options/parsing.hpp"

#include <launch/tools/scaling/study_launches.hpp>
#include <launch/tools/tools.hpp>
#include <support/made_studies.hpp>
#include <support/temp_directory.hpp>

#include <gtest/gtest.h>

#include <fstream>

namespace maniple {
namespace {

namespace fs = std::filesystem;

Study made_study(std::vector<StudyPoint> points = {{1, 1}, {1, 2}, {1, 4}}) {
  Study study;
  study.model = "/models/m";
  study.model_hash = "aaaa";
  study.points = std::move(points);
  study.rounds = 2;
  study.launcher = "mpirun -n {ranks}";
  study.workload = {{"lengths", "fixed:16/16"}, {"seed", "0"}};
  return study;
}

StudySettings settings_of(const std::vector<std::string>& words) {
  std::vector<std::string> args = {"scaling", "plan", "study", "--model", "m"};
  args.insert(args.end(), words.begin(), words.end());
  return options_of<parse_scaling>(args).settings;
}

TEST(ScalingOptions, PointsAreAscendingAndCountOnce) {
  EXPECT_EQ(settings_of({"--dp", "4,1,2,2"}).points, (std::vector<StudyPoint>{{1, 1}, {1, 2}, {1, 4}}));
  EXPECT_EQ(settings_of({"--tp", "1,2", "--dp", "3"}).points, (std::vector<StudyPoint>{{1, 3}, {2, 3}}));
  EXPECT_EQ(settings_of({"--tp", "2", "--pp", "4,1", "--dp", "3"}).points,
            (std::vector<StudyPoint>{{2, 3, 1}, {2, 3, 4}}));
  EXPECT_THROW(settings_of({"--tp", "1,2", "--pp", "1,2"}), Error);
}

TEST(ScalingOptions, FurtherOptionsOfTheBenchFollowTwoDashes) {
  const StudySettings settings =
      settings_of({"--seed", "5", "--", "--max-num-seqs", "64", "--no-prefix-cache"});
  EXPECT_EQ(settings.workload.at("seed"), "5");
  EXPECT_EQ(settings.workload.at("max-num-seqs"), "64");
  EXPECT_EQ(settings.workload.at("no-prefix-cache"), "");
  EXPECT_THROW(settings_of({"--", "64"}), Error);
}

TEST(ScalingOptions, VariablesOfTheShellAreNoPlaces) {
  EXPECT_EQ(settings_of({"--launcher", "srun -A ${ACCOUNT} -n {ranks}"}).launcher,
            "srun -A ${ACCOUNT} -n {ranks}");
  EXPECT_THROW(settings_of({"--launcher", "srun -A {ACCOUNT} -n {ranks}"}), Error);
}

TEST(Study, StagesCountAsRanksAndShowWhereThereAreSeveral) {
  Study study = made_study({{2, 1, 1}, {2, 1, 3}});
  EXPECT_EQ(title_of(study), "strong scaling over pp (tp 2, dp 1)");
  EXPECT_EQ(place_of({2, 1, 1}, 1), "points/tp2-dp1/round-1");
  EXPECT_EQ(place_of({2, 1, 3}, 1), "points/tp2-pp3-dp1/round-1");
  study.launcher = "srun -n {ranks} --job-name tp{tp}-pp{pp}";
  const std::string command = command_of(study, {2, 1, 3}, "maniple", "r.h5");
  EXPECT_TRUE(command.starts_with("srun -n 6 --job-name tp2-pp3 maniple bench throughput")) << command;
  EXPECT_NE(command.find("--num-prompts 100 --pp 3 "), std::string::npos) << command;
  const TempDirectory tree;
  const std::filesystem::path folder = tree.path() / "study";
  EXPECT_TRUE(write_study(study, folder));
  EXPECT_EQ(read_study(folder).points, study.points);
}

TEST(Study, CommandHasTheWorkOfItsPoint) {
  Study study = made_study();
  EXPECT_EQ(
      command_of(study, {1, 4}, "maniple", "/s/r.h5"),
      "mpirun -n 4 maniple bench throughput --model /models/m --tp 1 --num-prompts 100 --lengths fixed:16/16 "
      "--seed 0 --record /s/r.h5 --overwrite --quiet");
  study.mode = ScalingMode::weak;
  study.launcher = "srun -N {nodes} --ntasks-per-node={ranks_per_node} -n {ranks}";
  study.ranks_per_node = 3;
  const std::string line = command_of(study, {1, 4}, "maniple", "/s/it's.h5");
  EXPECT_TRUE(line.starts_with("srun -N 2 --ntasks-per-node=3 -n 4 maniple ")) << line;
  EXPECT_NE(line.find(" --num-prompts 400 "), std::string::npos) << line;
  EXPECT_NE(line.find(R"( --record '/s/it'\''s.h5' )"), std::string::npos) << line;
}

TEST(Study, IsReadAsItWasWritten) {
  const TempDirectory folder;
  Study study = made_study();
  study.workload["no-prefix-cache"] = "";
  EXPECT_TRUE(write_study(study, folder.path() / "s"));
  EXPECT_FALSE(write_study(study, folder.path() / "s"));
  const Study read = read_study(folder.path() / "s");
  EXPECT_EQ(read.points, study.points);
  EXPECT_EQ(read.workload, study.workload);
  EXPECT_EQ(command_of(read, {1, 2}, "m", "r"), command_of(study, {1, 2}, "m", "r"));
  study.model_hash = "bbbb";
  EXPECT_THROW(write_study(study, folder.path() / "s"), Error);
}

TEST(Study, DamagedFilesAreRefused) {
  const TempDirectory folder;
  for (const char* text : {"", "{", "[]", "{\"schema\": \"maniple-study 2\"}",
                           "{\"schema\": \"maniple-study 1\", \"mode\": 3}"}) {
    std::ofstream(folder.path() / study_file_name) << text;
    EXPECT_THROW(read_study(folder.path()), Error) << text;
  }
}

TEST(StudyLaunches, RoundsAreTheOuterLoop) {
  const TempDirectory folder;
  const std::vector<StudyLaunch> launches = launches_of(made_study(), folder.path());
  ASSERT_EQ(launches.size(), 6);
  EXPECT_EQ(launches[2].folder, folder.path() / "points/tp1-dp4/round-1");
  EXPECT_EQ(launches[3].folder, folder.path() / "points/tp1-dp1/round-2");
}

TEST(StudyLaunches, WaitUntilTheyHaveARecordOrFailedTwice) {
  const TempDirectory folder;
  const Study study = made_study();
  write_launch(study, folder.path(), {1, 1}, 1, 100);
  const fs::path failing = folder.path() / place_of({1, 2}, 1);
  fs::create_directories(failing);
  std::ofstream(failing / "attempts") << "137\n";
  EXPECT_FALSE(launches_of(study, folder.path())[0].waits());
  EXPECT_TRUE(launches_of(study, folder.path())[1].waits());
  std::ofstream(failing / "attempts", std::ios::app) << "1\n";
  EXPECT_TRUE(launches_of(study, folder.path())[1].skipped());
  write_launch(study, folder.path(), {1, 2}, 1, 100);
  EXPECT_FALSE(launches_of(study, folder.path())[1].skipped());
}

TEST(StudyLaunches, RecordsOfOthersDoNotCount) {
  const Study study = made_study();
  const StudyPoint point{1, 2};
  EXPECT_EQ(reason_against(made_launch(study, point, 100), study, point), "");
  EXPECT_EQ(reason_against(made_launch(study, {1, 4}, 100), study, point), "it has 4 ranks");
  EXPECT_EQ(reason_against(made_launch(study, {2, 1}, 100), study, point), "its --tp is another one");
  Study other = study;
  other.workload["seed"] = "1";
  EXPECT_EQ(reason_against(made_launch(other, point, 100), study, point), "its --seed is another one");
  other = study;
  other.num_prompts = 99;
  EXPECT_EQ(reason_against(made_launch(other, point, 100), study, point), "its --num-prompts is another one");
  other = study;
  other.model_hash = "bbbb";
  EXPECT_EQ(reason_against(made_launch(other, point, 100), study, point), "its model is another one");
  Record record = made_launch(study, point, 100);
  record.complete = false;
  EXPECT_EQ(reason_against(record, study, point), "its job did not end");
  record = made_job({});
  EXPECT_EQ(reason_against(record, study, point), "it is not of bench throughput");
}

}  // namespace
}  // namespace maniple
