#include <kernels/support/check.hpp>
#include <launch/launcher.hpp>
#include <launch/progress.hpp>
#include <launch/report.hpp>

#include <gtest/gtest.h>

#include <map>

namespace maniple {
namespace {

using namespace std::chrono_literals;

Launch launched_with(const std::map<std::string, std::string>& variables) {
  return detect_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Launcher, SlurmTellsThatItHasStartedTheJobBefore) {
  EXPECT_FALSE(launched_with({}).requeued);
  EXPECT_FALSE(launched_with({{"SLURM_RESTART_COUNT", "0"}}).requeued);
  EXPECT_TRUE(launched_with({{"SLURM_RESTART_COUNT", "2"}}).requeued);
}

std::string no_list() { return ""; }

TEST(Launcher, ByHandThereIsNoMpi) {
  const Launch launch = launched_with({});
  EXPECT_FALSE(launch.by_mpi);
  EXPECT_EQ(launch.rank, 0);
  EXPECT_NO_THROW(check_launch(launch, 1, no_list));
}

TEST(Launcher, InAJobScriptWithoutSrunThereIsNoMpi) {
  const Launch launch = launched_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}});
  EXPECT_FALSE(launch.by_mpi);
  EXPECT_NO_THROW(check_launch(launch, 1, no_list));
}

TEST(Launcher, MpirunAndPmixAndPmiTellTheRank) {
  EXPECT_TRUE(launched_with({{"OMPI_COMM_WORLD_SIZE", "4"}}).by_mpi);
  EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}).rank, 3);
  const Launch pmix =
      launched_with({{"PMIX_RANK", "2"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_TRUE(pmix.by_mpi);
  EXPECT_EQ(pmix.rank, 2);
  EXPECT_TRUE(launched_with({{"PMI_RANK", "1"}}).by_mpi);
}

TEST(Launcher, MpirunAndSrunTellHowManyRanksBelongOnThisNode) {
  const Launch mpirun = launched_with({{"OMPI_COMM_WORLD_RANK", "5"},
                                       {"OMPI_COMM_WORLD_SIZE", "8"},
                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                       {"PMIX_NAMESPACE", "prterun-n1-7@1/0"},
                                       {"SLURM_LOCALID", "0"},
                                       {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(mpirun.step, "prterun-n1-7@1_0") << "the name of a file";
  EXPECT_EQ(mpirun.ranks, 8);
  EXPECT_EQ(mpirun.local_rank, 1);
  EXPECT_EQ(mpirun.local_size, 4);
  std::map<std::string, std::string> variables{
      {"PMIX_RANK", "5"},     {"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"},
      {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2),3,1"}};
  for (const auto& [node, size] :
       std::map<std::string, int>{{"0", 2}, {"1", 2}, {"2", 3}, {"3", 1}, {"4", 0}}) {
    variables["SLURM_NODEID"] = node;
    EXPECT_EQ(launched_with(variables).local_size, size);
  }
  EXPECT_EQ(launched_with(variables).step, "7.0");
  EXPECT_EQ(launched_with(variables).ranks, 8);
  EXPECT_EQ(launched_with(variables).local_rank, 1);
  EXPECT_FALSE(launched_with({{"PMIX_RANK", "0"}}).local_rank);
}

TEST(Launcher, NodesUnderSrunMayLeaveMpiInitEarlyUnlessTheirFencesAreRings) {
  std::map<std::string, std::string> variables{
      {"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}, {"SLURM_NNODES", "2"}};
  EXPECT_GT(launched_with(variables).settle, 0ms);
  variables["SLURM_PMIX_FENCE"] = "tree";
  EXPECT_GT(launched_with(variables).settle, 0ms);
  variables["SLURM_PMIX_FENCE"] = "ring";
  EXPECT_EQ(launched_with(variables).settle, 0ms);
  variables = {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}, {"SLURM_NNODES", "1"}};
  EXPECT_EQ(launched_with(variables).settle, 0ms);
  variables = {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "2838233089"}, {"SLURM_NNODES", "2"}};
  EXPECT_EQ(launched_with(variables).settle, 0ms) << "mpirun inside an allocation";
}

TEST(Launcher, SrunWithoutPmixIsRefusedWithTheFlagToUse) {
  const Launch launch = launched_with({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  EXPECT_FALSE(launch.by_mpi);
  EXPECT_EQ(launch.rank, 5);
  try {
    check_launch(launch, 1, no_list);
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    EXPECT_NE(std::string(error.what()).find("8 copies"), std::string::npos);
    EXPECT_NE(error.remedy().find("srun --mpi=pmix"), std::string::npos);
  }
}

TEST(Launcher, NamesWhatTheSiteOffersOnRank0) {
  const std::string list =
      "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n";
  EXPECT_EQ(mpi_plugins(list), "none, pmi2, pmix");
  try {
    check_launch(launched_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}), 1,
                 [&] { return list; });
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(error.remedy().find("this site offers: none, pmi2, pmix"), std::string::npos);
  }
}

TEST(Launcher, KnowsHeterogeneousJobsAndWhatKeepsNcclOnSockets) {
  EXPECT_EQ(launched_with({}).het_components, 1);
  EXPECT_EQ(launched_with({{"SLURM_HET_SIZE", "2"}}).het_components, 2);
  EXPECT_EQ(launched_with({{"NCCL_IB_DISABLE", "0"}}).nccl_off_fabric, "");
  EXPECT_EQ(launched_with({{"NCCL_IB_DISABLE", "1"}}).nccl_off_fabric, "NCCL_IB_DISABLE=1");
  EXPECT_EQ(launched_with({{"NCCL_NET", "Socket"}}).nccl_off_fabric, "NCCL_NET=Socket");
}

TEST(Launcher, SeveralTasksThatMpiSeesAsOneAreRefusedWhateverTheVariables) {
  const Launch launch = launched_with({{"PMI_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  EXPECT_THROW(check_launch(launch, 1, no_list), Error);
  EXPECT_NO_THROW(check_launch(launch, 8, no_list));
}

TEST(Launcher, KnowsTheJobAsSqueueNamesItAndItsEnd) {
  EXPECT_EQ(launched_with({}).job, "");
  EXPECT_EQ(launched_with({}).job_end, std::nullopt);
  const Launch job = launched_with({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_END_TIME", "1795267687"}});
  EXPECT_EQ(job.job, "7");
  EXPECT_EQ(job.job_end, std::chrono::system_clock::from_time_t(1'795'267'687));
  const Launch last_task =
      launched_with({{"SLURM_JOB_ID", "7"}, {"SLURM_ARRAY_JOB_ID", "7"}, {"SLURM_ARRAY_TASK_ID", "2"}});
  EXPECT_EQ(last_task.job, "7_2");
}

std::vector<Place> on_one_node(int ranks) {
  std::vector<Place> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back({"nid1", 0, rank, ranks});
  return places;
}

JobProgress rates(double prefill, double decode) {
  JobProgress progress;
  progress.requests = 48;
  progress.done = 12;
  progress.failed = 1;
  progress.running = 8;
  progress.waiting = 28;
  progress.prefill_tokens_per_second = prefill;
  progress.tokens_per_second = decode;
  progress.average_tokens_per_second = 18;
  return progress;
}

TEST(ProgressLine, OnATerminalUpdatesInPlaceAndFitsIt) {
  const ProgressLine::Clock::time_point start{};
  ProgressLine line(120, start);
  EXPECT_EQ(line.update(rates(1234, 567), start),
            "\r25.0% 12/48 | decode 567 tok/s (avg 18) prefill 1234 | running 8 waiting 28 failed 1\x1b[K");
  ProgressLine narrow(7, start);
  EXPECT_EQ(narrow.update(rates(1, 1), start), "\r25.0% \x1b[K");
}

TEST(ProgressLine, InALogIsWholeEvery30SecondsAlsoWhenNothingFinished) {
  const ProgressLine::Clock::time_point start{};
  ProgressLine line({}, start);
  EXPECT_EQ(line.update(rates(100, 10), start + 1s), "");
  EXPECT_EQ(
      line.update(rates(300, 30), start + 30s),
      "[00:00:30] 25.0% 12/48 | decode 20 tok/s (avg 18) prefill 200 | running 8 waiting 28 failed 1\n");
  EXPECT_EQ(line.update(rates(1, 1), start + 59s), "");
  EXPECT_EQ(line.update(rates(1, 1), start + 3660s).substr(0, 17), "[01:01:00] 25.0% ");
  EXPECT_EQ(line.clear(), "");
}

TEST(ProgressLine, SaysWhenItEndsWhenItMustAndWhoStandsStill) {
  Progress engine;
  engine.running = 8;
  engine.completion_tokens = 300;
  engine.stall = Stall{2, {8, 9, 10, 11}, 28.3};
  std::vector<Place> places(12, Place{.host = "nid0043"});
  const JobProgress now = job_progress(engine, {48, 22, 12, 1}, 30, 4320, places);
  EXPECT_EQ(now.waiting, 18U);
  ProgressLine line({}, {});
  EXPECT_EQ(
      line.update(now, ProgressLine::Clock::time_point{} + 30s),
      "[00:00:30] 45.8% 22/48 | decode 0 tok/s (avg 10) prefill 0 | running 8 waiting 18 failed 1 | ETA "
      "00:01:18 | limit in 01:12:00 | STALL 28 s no token from replica 2 (ranks 8-11 on nid0043)\n");
  engine.stall->seconds = 14;
  EXPECT_EQ(job_progress(engine, {48, 12, 12, 0}, 30, {}, places).stall, "");
  EXPECT_EQ(job_progress(engine, {48, 12, 12, 0}, 30, {}, places).seconds_left, std::nullopt);
}

TEST(ErrorBlock, SaysWhatWhyAndWhatToTry) {
  EXPECT_EQ(error_block({ExitCode::input, "what", "because", "this"}, "rank 3 on nid7"),
            "maniple: error: what\n  why: because\n  try: this\n  where: rank 3 on nid7\n");
  EXPECT_EQ(error_block({ExitCode::input, "what"}), "maniple: error: what\n");
}

TEST(Summary, HasMediansAndTheSlowestRank) {
  RunSummary summary;
  summary.prompt_tokens = 30;
  summary.cached_tokens = 10;
  summary.completion_tokens = 100;
  summary.seconds = 4;
  summary.ranks = {{1, 1, 2, 0.5, 0}, {1.2, 1, 3, 0, 0.5}, {3, 1, 2, 1, 1}};
  EXPECT_EQ(summary_text(summary, 48, 1, on_one_node(3)),
            "maniple: 48 requests, 1 failed; 30 prompt tokens (10 cached), 100 completion tokens in 4.0 s: "
            "25.0 tok/s\n"
            "maniple: times (medians of the ranks): load 1.2 s, prefill 1.0 s, decode 2.0 s, communication "
            "0.5 s, idle 0.5 s\n"
            "maniple: slowest rank: 1 on nid1, 4.0 s of its own work (median 2.5 s)\n");
}

}  // namespace
}  // namespace maniple
