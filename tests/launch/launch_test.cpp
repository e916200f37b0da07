#include <kernels/support/check.hpp>
#include <launch/output/progress.hpp>
#include <launch/output/report.hpp>
#include <launch/process/launcher.hpp>

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
  EXPECT_FALSE(launch.under_mpi);
  EXPECT_EQ(launch.rank, 0);
  EXPECT_NO_THROW(check_launch(launch, 1, "", no_list));
}

TEST(Launcher, InAJobScriptWithoutSrunThereIsNoMpi) {
  const Launch launch = launched_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}});
  EXPECT_FALSE(launch.under_mpi);
  EXPECT_NO_THROW(check_launch(launch, 1, "", no_list));
}

TEST(Launcher, MpirunAndPmixAndPmiTellTheRank) {
  EXPECT_TRUE(launched_with({{"OMPI_COMM_WORLD_SIZE", "4"}}).under_mpi);
  EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}).rank, 3);
  const Launch pmix =
      launched_with({{"PMIX_RANK", "2"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_TRUE(pmix.under_mpi);
  EXPECT_EQ(pmix.rank, 2);
  EXPECT_TRUE(launched_with({{"PMI_RANK", "1"}}).under_mpi);
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
  EXPECT_FALSE(launch.under_mpi);
  EXPECT_EQ(launch.rank, 5);
  try {
    check_launch(launch, 1, "", no_list);
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
    check_launch(launched_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}), 1, "",
                 [&] { return list; });
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(error.remedy().find("this site offers: none, pmi2, pmix"), std::string::npos);
  }
}

// The message that refuses a rank alone in its MPI world; empty without a refusal.
std::string refusal_of(const std::map<std::string, std::string>& variables, int mpi_ranks = 1) {
  try {
    check_launch(launched_with(variables), mpi_ranks, "Open MPI v4.1.4", no_list);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    return fmt::format("{} | {} | {}", error.what(), error.why(), error.remedy());
  }
}

TEST(Launcher, CopiesOfAnotherLauncherAreRefusedWithItsNameAndOurMpi) {
  const std::map<std::string, std::vector<std::string>> launchers{
      {"PMI_SIZE", {"PMI_RANK", "mpiexec of another MPI", "the mpirun of Open MPI v4.1.4"}},
      {"FLUX_JOB_SIZE", {"FLUX_TASK_RANK", "Flux", "flux run -o pmi=pmix"}},
      {"PALS_LOCAL_SIZE", {"PALS_RANKID", "PALS", "mpiexec --pmi=pmix"}},
      {"OMPI_COMM_WORLD_SIZE", {"OMPI_COMM_WORLD_RANK", "mpirun of another MPI", "srun --mpi=pmix"}}};
  for (const auto& [size, told] : launchers) {
    EXPECT_EQ(launched_with({{size, "4"}, {told[0], "3"}}).rank, 3) << size;
    EXPECT_EQ(refusal_of({{size, "4"}, {told[0], "3"}}, 4), "") << size;
    EXPECT_EQ(refusal_of({{size, "1"}, {told[0], "0"}}), "") << size;
    const std::string refusal = refusal_of({{size, "4"}, {told[0], "3"}});
    for (const std::string& part : {std::string("4 copies"), size + "=4", told[1], told[2],
                                    std::string("Open MPI v4.1.4"), "env -u " + size})
      EXPECT_NE(refusal.find(part), std::string::npos) << part << " in " << refusal;
  }
}

TEST(Launcher, TheNearestLauncherSaysHowManyCopiesThereAre) {
  const std::map<std::string, std::string> mpirun_of_one{{"OMPI_COMM_WORLD_SIZE", "1"},
                                                         {"OMPI_COMM_WORLD_RANK", "0"}};
  for (const char* outer : {"FLUX_JOB_SIZE", "PMI_SIZE", "PALS_LOCAL_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    std::map<std::string, std::string> variables = mpirun_of_one;
    variables[outer] = "4";
    EXPECT_EQ(refusal_of(variables), "") << outer;
  }
  EXPECT_EQ(refusal_of({{"FLUX_JOB_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}), "");
  EXPECT_NE(refusal_of({{"PALS_LOCAL_SIZE", "1"}, {"PALS_RANKID", "2"}, {"PMI_SIZE", "4"}}), "")
      << "one on each node";
  EXPECT_NE(refusal_of({{"PMI_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}}).find("this site"),
            std::string::npos)
      << "srun --mpi=pmi2";
  EXPECT_NE(refusal_of({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}})
                .find("4 copies were started, but MPI sees 1 rank in each: mpiexec"),
            std::string::npos)
      << "Hydra's helpers are srun's";
}

TEST(Launcher, ACopyThatIsAloneOnPurposeSpeaks) {
  EXPECT_EQ(launched_with({{"PMI_RANK", "2"}}).rank, 0);
  EXPECT_EQ(launched_with({{"FLUX_TASK_RANK", "2"}}).rank, 0);
}

TEST(Launcher, KnowsOfAnAllocationWhoseOtherTasksNobodyStarted) {
  const std::map<std::string, std::string> script{{"SLURM_NTASKS", "8"}, {"SLURM_CPUS_PER_TASK", "4"}};
  const auto and_also = [&](std::map<std::string, std::string> more) {
    more.insert(script.begin(), script.end());
    return launched_with(more);
  };
  EXPECT_EQ(launched_with({}).allocated_tasks, 1);
  EXPECT_EQ(launched_with(script).allocated_tasks, 8);
  EXPECT_EQ(launched_with(script).cpus_per_task, 4);
  EXPECT_EQ(and_also({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "4294967290"}}).allocated_tasks, 8)
      << "salloc's shell";
  EXPECT_EQ(and_also({{"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "0"}}).allocated_tasks, 1);
  EXPECT_EQ(and_also({{"OMPI_COMM_WORLD_SIZE", "1"}}).allocated_tasks, 1);
}

TEST(Launcher, KnowsHeterogeneousJobsAndWhatKeepsNcclOnSockets) {
  EXPECT_EQ(launched_with({}).het_components, 1);
  EXPECT_EQ(launched_with({{"SLURM_HET_SIZE", "2"}}).het_components, 2);
  EXPECT_EQ(launched_with({{"NCCL_IB_DISABLE", "0"}}).nccl_off_fabric, "");
  EXPECT_EQ(launched_with({{"NCCL_IB_DISABLE", "1"}}).nccl_off_fabric, "NCCL_IB_DISABLE=1");
  EXPECT_EQ(launched_with({{"NCCL_NET", "Socket"}}).nccl_off_fabric, "NCCL_NET=Socket");
  EXPECT_FALSE(launched_with({{"NCCL_MULTI_RANK_GPU_ENABLE", "0"}}).nccl_shares_gpus);
  EXPECT_TRUE(launched_with({{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}}).nccl_shares_gpus);
}

TEST(Launcher, SeveralTasksThatMpiSeesAsOneAreRefusedWhateverTheVariables) {
  const Launch launch = launched_with({{"PMI_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  EXPECT_THROW(check_launch(launch, 1, "", no_list), Error);
  EXPECT_NO_THROW(check_launch(launch, 8, "", no_list));
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

std::vector<RankLocation> on_one_node(int ranks) {
  std::vector<RankLocation> locations;
  for (int rank = 0; rank < ranks; ++rank) locations.push_back({"nid1", 0, rank, ranks});
  return locations;
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
  std::vector<RankLocation> locations(12, RankLocation{.host = "nid0043"});
  const JobProgress now = job_progress(engine, {48, 22, 12, 1}, 30, 4320, locations);
  EXPECT_EQ(now.waiting, 18U);
  ProgressLine line({}, {});
  EXPECT_EQ(
      line.update(now, ProgressLine::Clock::time_point{} + 30s),
      "[00:00:30] 45.8% 22/48 | decode 0 tok/s (avg 10) prefill 0 | running 8 waiting 18 failed 1 | ETA "
      "00:01:18 | limit in 01:12:00 | STALL 28 s no token from replica 2 (ranks 8-11 on nid0043)\n");
  engine.stall->seconds = 14;
  EXPECT_EQ(job_progress(engine, {48, 12, 12, 0}, 30, {}, locations).stall, "");
  EXPECT_EQ(job_progress(engine, {48, 12, 12, 0}, 30, {}, locations).seconds_left, std::nullopt);
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
  summary.stopped = 40;
  summary.reached_length = 7;
  summary.ranks = {{1, 1, 2, 0.5, 0}, {1.2, 1, 3, 0, 0.5}, {3, 1, 2, 1, 1}};
  EXPECT_EQ(summary_text(summary, 48, 1, 4096, on_one_node(3)),
            "maniple: 48 requests, 1 failed; 30 prompt tokens (10 cached), 100 completion tokens in 4.0 s: "
            "25.0 tok/s\n"
            "maniple: ended by: stop 40, length 7, error 1\n"
            "maniple: times (medians of the ranks): load 1.2 s, prefill 1.0 s, decode 2.0 s, communication "
            "0.5 s, idle 0.5 s\n"
            "maniple: slowest rank: 1 on nid1, 4.0 s of its own work (median 2.5 s)\n");
}

TEST(Summary, OfOneHasNoPlural) {
  RunSummary summary;
  summary.prompt_tokens = summary.completion_tokens = 1;
  summary.preemptions = 1;
  summary.seconds = 1;
  const std::string text = summary_text(summary, 1, 0, 4096, on_one_node(1));
  EXPECT_EQ(
      text.substr(0, text.find('\n')),
      "maniple: 1 request, 0 failed; 1 prompt token (0 cached), 1 completion token in 1.0 s: 1.0 tok/s, 1 "
      "preemption");
}

TEST(Summary, SaysWhatTheContextAndTheCacheCutShort) {
  RunSummary summary;
  summary.clipped = 1;
  summary.ended_by_context = 3;
  summary.ended_by_cache = 2;
  const std::string text = summary_text(summary, 6, 0, 4096, on_one_node(1));
  for (const char* part :
       {"max_tokens of 1 request clipped to what the context of 4096 tokens leaves\n",
        "3 requests ended at the end of the context of 4096 tokens\n",
        "2 chats without max_tokens ended where the KV cache ends; for more: --kv-memory\n"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace maniple
