// Every message, provoked by made-up facts.
#include <launch/options/option_names.hpp>
#include <launch/preflight/checks.hpp>
#include <launch/preflight/preflight.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <support/test_data.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

// Ranks without errors: this many nodes of this many ranks, each rank with four CPUs of its own.
JobFacts healthy(int nodes = 1, int ranks_a_node = 2) {
  JobFacts s;
  s.options.engine.backend = {.kind = BackendKind::cpu};
  s.plan.backend = {.kind = BackendKind::cpu, .cpu_path = CpuPath::avx2};
  for (int node = 0; node < nodes; ++node)
    for (int local = 0; local < ranks_a_node; ++local) {
      s.locations.push_back({"nid" + std::to_string(node + 1), node, local, ranks_a_node});
      RankFacts facts;
      for (int cpu = 0; cpu < 4; ++cpu) facts.cpus.push_back(local * 4 + cpu);
      facts.cpus_of_node = 4 * ranks_a_node;
      facts.cpu_paths = {"avx2", "portable"};
      facts.numa_nodes = {local / 2};
      facts.core_size = {0, 0};
      facts.subnets = {{"eno1", "10.1.0.0/16"}};
      facts.versions = {{"maniple", "0.1.0 aa"}, {"libmpi", "libmpi.so.40 bb"}};
      facts.clock = {1000, 0.001};
      facts.run_dir = {"/scratch/r1", "lustre", true, uint64_t{1} << 40};
      s.ranks.push_back(facts);
    }
  return s;
}

JobFacts healthy_gpus(int nodes = 1, int ranks_a_node = 4) {
  JobFacts s = healthy(nodes, ranks_a_node);
  s.plan.backend.kind = BackendKind::cuda;
  s.options.launch.job = "7";
  for (size_t rank = 0; rank < s.size(); ++rank)
    for (int gpu = 0; gpu < ranks_a_node; ++gpu)
      s.ranks[rank].gpus.push_back({"GPU-" + std::to_string(s.locations[rank].node * 10 + gpu),
                                    "0000:0" + std::to_string(gpu) + ":00.0",
                                    gpu / 2,
                                    {}});
  for (RankFacts& facts : s.ranks)
    for (GpuFacts& gpu : facts.gpus)
      for (const GpuFacts& other : facts.gpus)
        if (other.uuid != gpu.uuid) gpu.peers.push_back(other.uuid);
  return s;
}

// The messages of all checks.
std::string findings(const JobFacts& job) {
  std::string text;
  for (const auto& [name, finding] : run_checks(job))
    if (finding) text += finding_block(*finding);
  return text;
}
// The same, with the plan of the options without a model.
std::string finding_of(JobFacts job) {
  job.plan = plan_job(job.locations, job.options.engine, job.plan.backend);
  return findings(job);
}

TEST(Checks, HaveNothingToSayWhereAllIsWell) {
  EXPECT_EQ(finding_of(healthy(1, 1)), "");
  JobFacts s = healthy(2, 2);
  s.options.engine.tensor_size = 2;
  s.options.engine.model = "m";
  s.options.run_dir = "/scratch/r1";
  s.results_bytes = 1;
  s.seconds_left = 3600;
  EXPECT_EQ(finding_of(s), "");
  EXPECT_EQ(finding_of(healthy_gpus(2)), "");
}

TEST(Checks, AreCountedWhereTheyApply) {
  const size_t on_one_node = run_checks(healthy()).size();
  EXPECT_GT(run_checks(healthy(2)).size(), on_one_node);
  EXPECT_EQ(preflight_text(run_checks(healthy())),
            "maniple: preflight: " + std::to_string(on_one_node) + " checks ok, 0 warnings\n");
}

TEST(Checks, OneComponent) {
  JobFacts s = healthy();
  s.options.launch.het_components = 2;
  EXPECT_EQ(finding_of(s),
            "refused: this is a heterogeneous Slurm job of 2 components\n"
            "  why: MPI over several components is not supported\n"
            "  try: one component: a job without \"#SBATCH hetjob\" and without \" : \"\n");
  EXPECT_TRUE(has_refusal(run_checks(s)));
  try {
    throw_refusal(run_checks(s));
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
  }
}

TEST(Checks, TensorGroupsOverNodesAreRefusedUnlessAllowed) {
  JobFacts s = healthy(2, 4);
  s.options.engine.tensor_size = 8;
  EXPECT_EQ(finding_of(s),
            "refused: --tp 8 spans nodes: the ranks are 0-3 on nid1, 4-7 on nid2\n"
            "  why: every layer would wait for the network between the nodes twice\n"
            "  try: --tp 4 (more replicas), or --allow-cross-node-tp to accept\n");
  s.options.allow_cross_node_tp = true;
  EXPECT_EQ(finding_of(s), "");

  s = healthy(2, 2);  // srun -N 2 -n 4 may give 3 ranks to the first node
  s.options.engine.tensor_size = 2;
  s.locations[2].node = 0;
  s.locations[2].host = s.locations[0].host;
  for (size_t rank = 0; rank < 3; ++rank) s.locations[rank].local_size = 3;
  s.locations[3].local_size = 1;
  EXPECT_NE(finding_of(s).find("  try: srun --ntasks-per-node=2 (mpirun --map-by ppr:2:node), or "
                               "--allow-cross-node-tp to accept\n"),
            std::string::npos)
      << finding_of(s);
}

TEST(Checks, ACyclicDistributionIsToldTheRightOne) {
  JobFacts s = healthy(2, 2);
  s.options.engine.tensor_size = 2;
  std::swap(s.locations[1], s.locations[2]);
  EXPECT_NE(finding_of(s).find("the ranks are 0,2 on nid1, 1,3 on nid2\n"), std::string::npos);
  EXPECT_NE(finding_of(s).find("try: srun --distribution=block (mpirun --map-by slot), or --allow-cross"),
            std::string::npos);
}

TEST(Checks, OneRankANodeMustAskForTensorGroupsToo) {
  JobFacts s = healthy(2, 1);
  s.options.engine.tensor_size = 2;
  EXPECT_NE(finding_of(s).find("try: --tp 1 (more replicas), or --allow-cross-node-tp"), std::string::npos);
}

TEST(Checks, DifferentProgramsAreRefusedWithATable) {
  JobFacts s = healthy(2, 2);
  s.ranks[3].versions["maniple"] = "0.1.0 cc";
  EXPECT_EQ(finding_of(s),
            "refused: not all ranks run the same program and libraries (name, version, hash of the file):\n"
            "    maniple 0.1.0 aa: ranks 0-2 (nid1, nid2)\n"
            "    maniple 0.1.0 cc: rank 3 (nid2)\n"
            "  why: ranks of different builds may hang or compute different things\n"
            "  try: load the same modules on every node, or copy one build to all (sbcast)\n");
}

TEST(Checks, DifferentDriversAreAWarningAndAMissingLibraryIsADifference) {
  JobFacts s = healthy();
  s.ranks[1].versions["libcuda"] = "libcuda.so.580 dd";
  EXPECT_NE(finding_of(s).find("warning: not all ranks"), std::string::npos);
  EXPECT_NE(finding_of(s).find("libcuda none: rank 0 (nid1)"), std::string::npos);
}

TEST(Checks, OneRankInAnAllocationOfSeveralTasks) {
  JobFacts s = healthy(1, 1);
  s.options.launch.allocated_tasks = 8;
  EXPECT_EQ(finding_of(s),
            "warning: one rank runs alone in a Slurm allocation of 8 tasks\n"
            "  why: without srun or mpirun it is the only one, and the rest of the allocation stays idle\n"
            "  try: srun --mpi=pmix --ntasks=8 maniple ..., or --ntasks=1 if one is meant\n");
  s.options.launch.cpus_per_task = 4;
  EXPECT_NE(finding_of(s).find("--ntasks=8 --cpus-per-task=4 maniple"), std::string::npos);
  JobFacts several = healthy();
  several.options.launch.allocated_tasks = 8;
  EXPECT_EQ(finding_of(several), "");
}

TEST(Checks, ProcessorsOfSeveralTypesAreNamedUnlessThePathWasChosen) {
  JobFacts s = healthy(2, 2);
  for (const size_t rank : {2, 3}) s.ranks[rank].cpu_paths.insert(s.ranks[rank].cpu_paths.begin(), "amx");
  EXPECT_EQ(finding_of(s),
            "warning: processors of different types: amx on ranks 2-3 (nid2), avx2 on ranks 0-1 (nid1); all "
            "compute by avx2\n"
            "  why: a later job of this run on better nodes would take another path, and be refused\n"
            "  try: --cpu-path avx2 for all jobs of a run, or nodes of one type: sbatch --constraint=NAME "
            "(sinfo -o \"%N %f\" lists them)\n");
  s.options.engine.backend.cpu_path = CpuPath::avx2;
  EXPECT_EQ(finding_of(s), "");
  s.plan.backend.cpu_path = CpuPath::amx;
  EXPECT_EQ(finding_of(s),
            "refused: --cpu-path amx: the processors of ranks 0-1 (nid1) cannot run it; their best is avx2\n"
            "  why: all ranks of a run compute by the same path\n"
            "  try: --cpu-path avx2 for a new run, or nodes of one type: sbatch --constraint=NAME "
            "(sinfo -o \"%N %f\" lists them)\n");
}

TEST(Checks, LengthsForWhichTheCacheHasNoRoom) {
  JobFacts s = healthy(1, 1);
  s.options.engine.model = "m";
  s.options.engine.block_size = 16;
  s.plan = plan_job(s.locations, s.options.engine, s.plan.backend);
  s.plan.needs = {{0, {2, {4, 64, 16, DType::bf16}}}};
  s.plan.max_model_len = 64;
  const size_t block = s.plan.needs[0].kv.block_bytes();
  const auto finding_with = [&](size_t bytes) {
    s.options.engine.kv_memory = bytes;
    for (const auto& [name, finding] : run_checks(s))
      if (finding) return finding_block(*finding);
    return std::string();
  };
  EXPECT_EQ(finding_with(4 * block), "");
  EXPECT_EQ(finding_with(3 * block),
            fmt::format("note: --kv-memory has room for 48 tokens at once, and --max-model-len is 64\n"
                        "  why: a longer request gets an error instead of a result\n"
                        "  try: --kv-memory {}, or --max-model-len 48\n",
                        4 * block));
  EXPECT_NE(finding_with(block - 1).find("refused: the KV cache has room for no block"), std::string::npos);
}

// Names of the checks that passed.
std::string in_order(JobFacts job) {
  job.plan = plan_job(job.locations, job.options.engine, job.plan.backend);
  std::string names;
  for (const auto& [name, finding] : run_checks(job))
    if (!finding) names += fmt::format("{}; ", name);
  return names;
}

TEST(Checks, OfGpusAreNotInOrderWhereThereAreNone) {
  JobFacts s = healthy_gpus(2, 2);
  s.options.engine.tensor_size = 2;
  for (RankFacts& facts : s.ranks) facts.fabric = {"mlx5_0/1"};
  for (const char* name :
       {"a GPU for each rank", "GPUs of a node", "GPUs of a tensor group", "near the GPU", "NCCL"})
    EXPECT_NE(in_order(s).find(name), std::string::npos) << name;
  for (RankFacts& facts : s.ranks) facts.gpus.clear();
  EXPECT_EQ(in_order(s).find("GPU"), std::string::npos) << in_order(s);
  EXPECT_EQ(in_order(s).find("NCCL"), std::string::npos) << in_order(s);
  s.cuda_build = false;
  EXPECT_EQ(in_order(s).find("GPU"), std::string::npos) << in_order(s);
  EXPECT_NE(finding_of(s).find("refused: this build has no CUDA backend\n"), std::string::npos);
}

TEST(Checks, TensorGroupsWhoseGpusDoNotReachEachOther) {
  JobFacts s = healthy_gpus();
  s.options.engine.tensor_size = 2;
  EXPECT_EQ(finding_of(s), "");
  for (RankFacts& facts : s.ranks) {  // two islands, and the groups are across them
    facts.gpus[1].peers = {"GPU-3"};
    facts.gpus[3].peers = {"GPU-1"};
    facts.gpus[0].peers = {"GPU-2", "GPU-1"};
    facts.gpus[2].peers = {"GPU-0", "GPU-3"};
  }
  EXPECT_NE(finding_of(s).find("warning: the GPUs of ranks 1,3 (nid1) have no peer access to others of their "
                               "tensor group\n"),
            std::string::npos)
      << finding_of(s);
  s.options.engine.share_gpus = true;
  EXPECT_EQ(finding_of(s), "") << "tensors go through the host as asked";
  s.options.engine.share_gpus = false;
  s.options.engine.tensor_size = 1;
  EXPECT_EQ(finding_of(s), "") << "a rank alone needs no peer";
}

TEST(Checks, NoGpu) {
  JobFacts s = healthy_gpus();
  for (RankFacts& facts : s.ranks) facts.gpus.clear();
  EXPECT_NE(finding_of(s).find("refused: no GPU is visible to ranks 0-3 (nid1)\n"), std::string::npos);
  s.options.launch.job.clear();
  EXPECT_NE(finding_of(s).find("refused: no GPU is visible on nid1, which is in no job\n"),
            std::string::npos);
  EXPECT_NE(finding_of(s).find("try: --backend cpu, or a job on GPU nodes (sbatch)\n"), std::string::npos);
}

TEST(Checks, GpusBesideRanksThatLandedOnCpus) {
  JobFacts s = healthy(2, 2);
  s.options.engine.backend.kind = BackendKind::automatic;
  EXPECT_EQ(finding_of(s), "");
  for (RankFacts& facts : s.ranks) facts.gpus_of_node = 4;
  for (size_t rank = 0; rank < 3; ++rank) s.ranks[rank].gpus = {{"GPU-1", "0000:01:00.0", 0, {}}};
  EXPECT_EQ(finding_of(s),
            "warning: all ranks run on CPUs, though nid1 has 4 GPUs\n"
            "  why: rank 3 (nid2) sees none: the job has none, or the driver is too old\n"
            "  try: --gpus-per-node=N (nvidia-smi tells the driver), or --backend cpu if it is meant\n");
  s.cuda_build = false;
  EXPECT_NE(finding_of(s).find("why: this build has no CUDA backend\n"), std::string::npos);
  s.options.engine.backend.kind = BackendKind::cpu;
  EXPECT_EQ(finding_of(s), "") << "--backend cpu was asked for";
}

TEST(Checks, HalfPrecisionIsForGpus) {
  JobFacts s = healthy_gpus();
  s.options.engine.dtype = DType::fp16;
  EXPECT_EQ(finding_of(s), "");
  s.plan.backend.kind = BackendKind::cpu;
  EXPECT_EQ(finding_of(s),
            "refused: --dtype fp16 is for GPUs, and this job runs on CPUs\n"
            "  why: the CPU backend computes in bf16 and fp32\n"
            "  try: --dtype bf16\n");
}

TEST(Checks, FewerGpusThanRanks) {
  JobFacts s = healthy_gpus();
  for (RankFacts& facts : s.ranks) facts.gpus.resize(2);
  EXPECT_NE(finding_of(s).find("refused: nid1: 4 ranks of this node see 2 GPUs each\n"), std::string::npos);
}

TEST(Checks, ASharedGpuIsNamedWithItsBusUnlessSharingIsAsked) {
  JobFacts s = healthy_gpus(1, 2);
  for (RankFacts& facts : s.ranks) facts.gpus.resize(1);
  EXPECT_NE(
      finding_of(s).find("refused: ranks 0 and 1 on nid1 have the same GPU, GPU-0 (bus 0000:00:00.0)\n"),
      std::string::npos)
      << finding_of(s);
  s.options.engine.share_gpus = true;
  EXPECT_EQ(finding_of(s), "");
}

TEST(Checks, GpusThatAreHiddenFromEachOther) {
  JobFacts s = healthy_gpus(1, 2);
  s.ranks[0].gpus.pop_back();
  s.ranks[1].gpus.erase(s.ranks[1].gpus.begin());
  EXPECT_NE(finding_of(s).find("warning: ranks 0-1 see their own GPU only\n"), std::string::npos);
}

TEST(Checks, CpusFarFromTheGpu) {
  JobFacts s = healthy_gpus();
  s.ranks[3].numa_nodes = {0};
  EXPECT_NE(finding_of(s).find("warning: rank 3 (nid1) runs on processors of another NUMA node"),
            std::string::npos);
  s.ranks[3].gpus[3].numa_node = -1;
  EXPECT_EQ(finding_of(s), "");
}

TEST(Checks, RanksThatGotOneCpuOfMany) {
  JobFacts s = healthy();
  for (RankFacts& facts : s.ranks) facts.cpus.resize(1);
  s.ranks[0].cpus_of_node = s.ranks[1].cpus_of_node = 4;
  EXPECT_NE(finding_of(s).find(
                "warning: 2 of 2 ranks may use only 1 CPU each, rank 0 1 of the 4 of nid1\n"
                "  why: mpirun binds each rank to a single core by default where it starts one or two\n"
                "  try: mpirun --bind-to none"),
            std::string::npos);
  s.options.engine.threads = 1;
  EXPECT_EQ(finding_of(s), "");
  s.options.engine.threads.reset();
  s.ranks[0].cpus_of_node = s.ranks[1].cpus_of_node = 2;
  EXPECT_EQ(finding_of(s), "");
}

TEST(Checks, MoreThreadsThanCpus) {
  JobFacts s = healthy();
  s.options.engine.threads = 4;
  EXPECT_EQ(finding_of(s), "");
  s.options.engine.threads = 6;
  EXPECT_NE(finding_of(s).find("warning: --threads 6, but ranks 0-1 (nid1) can have only 4 CPUs each\n"),
            std::string::npos);
  s.options.engine.threads = 4;
  s.ranks[1].cpus.resize(1);
  EXPECT_NE(finding_of(s).find("--threads 4, but rank 1 (nid1) can have only 1 CPU\n"), std::string::npos);
  s.ranks[1].cpus = s.ranks[0].cpus;  // they share them
  EXPECT_NE(finding_of(s).find("ranks 0-1 (nid1) can have only 2 CPUs each\n"), std::string::npos);
  EXPECT_FALSE(has_refusal(run_checks(s)));
}

TEST(Checks, MemoryIsThatOfTheNodeForAllItsRanks) {
  JobFacts s = healthy(2, 2);
  s.options.engine.model = "m";
  s.options.engine.kv_memory = uint64_t{4} << 30;
  for (RankFacts& facts : s.ranks) {
    facts.weight_bytes = uint64_t{12} << 30;
    facts.kv_bytes = uint64_t{4} << 30;
    facts.free_memory = uint64_t{32} << 30;
  }
  EXPECT_EQ(finding_of(s), "");
  s.ranks[3].free_memory = uint64_t{30} << 30;
  s.ranks[2].memory_limit = uint64_t{31} << 30;
  EXPECT_EQ(finding_of(s),
            "refused: the ranks 2-3 on nid2 need 24 GiB for weights and 8 GiB for the KV cache, but 30 GiB "
            "are free (the job's limit: 31 GiB)\n"
            "  why: the kernel would kill the job while it loads\n"
            "  try: more memory for the job (--mem=41G), more nodes with a larger --tp, or a smaller "
            "--kv-memory\n");
  s.plan.grid = {.tensor = 1, .pipeline = 4, .data = 1};
  s.plan.stages = {{0, 2}, {2, 4}, {4, 6}, {6, 7}};
  s.ranks[2].weight_bytes += 1;
  EXPECT_NE(findings(s).find("(the job's limit: 31 GiB); rank 2 of stage 2 (layers 4-5) has 12 GiB of "
                             "weights\n"),
            std::string::npos)
      << findings(s);
}

TEST(Checks, MemoryIsAlsoWhatALimitOfAddressesLeavesToEachRank) {
  JobFacts s = healthy(2, 2);
  s.options.engine.model = "m";
  for (RankFacts& facts : s.ranks) {
    facts.weight_bytes = uint64_t{12} << 30;
    facts.kv_bytes = uint64_t{4} << 30;
    facts.free_memory = uint64_t{64} << 30;
    facts.free_addresses = uint64_t{16} << 30;
  }
  EXPECT_EQ(finding_of(s), "");
  s.ranks[3].free_addresses -= uint64_t{1} << 30;
  s.ranks[3].addresses.soft = uint64_t{17} << 30;
  EXPECT_EQ(
      finding_of(s),
      "refused: rank 3 on nid2 needs 12 GiB for weights and 4 GiB for the KV cache, but 15 GiB of "
      "addresses "
      "are free (ulimit -v allows this process 17 GiB of addresses)\n"
      "  why: the job would fail while it loads\n"
      "  try: ulimit -v unlimited before the launcher's line; sbatch --propagate=NONE where the limit is the "
      "shell's\n");
}

// Sizes that it names have room.
TEST(Checks, MemoryThatAPipelineWouldHaveIsNamed) {
  JobFacts s = healthy(4, 1);
  s.options.engine.model = test_data() / "models/shakespeare";
  const ModelConfig config = read_model_config(ModelFiles(s.options.engine.model));
  const auto plan = [&](int stages, std::vector<int64_t> layers = {}) {
    s.options.engine.pipeline_size = stages;
    s.options.engine.pipeline_layers = std::move(layers);
    s.plan = plan_job(s.locations, s.options.engine, s.plan.backend, &config);
    for (size_t rank = 0; rank < s.size(); ++rank) {
      s.ranks[rank].weight_bytes = s.plan.needs_of(static_cast<int>(rank)).weight_bytes;
      s.ranks[rank].kv_bytes = s.plan.needs_of(static_cast<int>(rank)).kv.block_bytes();
    }
  };
  plan(2);
  const uint64_t room = s.ranks[0].weight_bytes + s.ranks[0].kv_bytes;
  for (RankFacts& facts : s.ranks) facts.free_memory = room;
  EXPECT_EQ(findings(s), "");
  plan(1);
  EXPECT_NE(findings(s).find("larger --tp, or --pp 2\n"), std::string::npos) << findings(s);
  plan(2, {1, 4});
  EXPECT_NE(findings(s).find("larger --tp, or --pp 2 without --pp-layers\n"), std::string::npos)
      << findings(s);
  for (RankFacts& facts : s.ranks) facts.free_memory = room / 8;
  EXPECT_EQ(findings(s).find("--pp"), std::string::npos) << findings(s);
}

TEST(Checks, LockedMemoryMattersWhereThereIsAFabric) {
  JobFacts s = healthy();
  s.ranks[1].locked_memory = {64 << 10, 64 << 10};
  EXPECT_EQ(finding_of(s), "");
  s.ranks[1].fabric = {"mlx5_0/1"};
  EXPECT_NE(finding_of(s).find(
                "warning: only 64 KiB of memory may be locked on nid1, and mlx5_0/1 is active there\n"),
            std::string::npos);
  EXPECT_NE(finding_of(s).find("the hard limit is 64 KiB): ask the site"), std::string::npos);
  s.ranks[1].locked_memory.hard = ResourceLimit::unlimited;
  EXPECT_NE(finding_of(s).find("try: ulimit -l unlimited"), std::string::npos);
}

TEST(Checks, NcclOnSocketsBesideAFabric) {
  JobFacts s = healthy_gpus(2);
  s.options.launch.nccl_off_fabric = "NCCL_IB_DISABLE=1";
  EXPECT_EQ(finding_of(s), "");
  for (RankFacts& facts : s.ranks) facts.fabric = {"mlx5_0/1", "mlx5_1/1"};
  EXPECT_NE(
      finding_of(s).find("warning: NCCL_IB_DISABLE=1 keeps NCCL on sockets, while mlx5_0/1, mlx5_1/1 on "
                         "nid1, nid2 are active\n"),
      std::string::npos);
}

TEST(Checks, NodesWithoutACommonNetworkAreListed) {
  JobFacts s = healthy(2, 1);
  s.ranks[1].subnets = {{"eth0", "10.2.0.0/16"}, {"eth1", "10.3.0.0/16"}};
  EXPECT_NE(
      finding_of(s).find("note: no IPv4 network is common to all nodes; by node, interface and network:\n"
                         "    nid1: eno1 10.1.0.0/16\n"
                         "    nid2: eth0 10.2.0.0/16 eth1 10.3.0.0/16\n"),
      std::string::npos);
  EXPECT_NE(finding_of(s).find("NCCL_SOCKET_IFNAME=NAME"), std::string::npos);
  s.plan.backend.kind = BackendKind::cuda;
  for (RankFacts& facts : s.ranks) facts.gpus = {{"GPU-" + facts.subnets[0].network, "0000:01:00.0", -1, {}}};
  EXPECT_NE(finding_of(s).find("warning: no IPv4 network"), std::string::npos);
}

TEST(Checks, RunDirectoriesThatOtherNodesDoNotSee) {
  JobFacts s = healthy(2, 1);
  s.options.run_dir = "/scratch/r1";
  s.ranks[1].run_dir.path = "/scratch";
  EXPECT_NE(finding_of(s).find("warning: /scratch/r1 is on lustre of nid1, but not on nid2\n"),
            std::string::npos);
  s.ranks[1].run_dir.path = "/scratch/r1";
  s.ranks[0].run_dir.file_system = "tmpfs";
  EXPECT_NE(finding_of(s).find("warning: /scratch/r1 is on tmpfs of nid1\n"), std::string::npos);
  JobFacts one = healthy(1, 2);
  one.options.run_dir = "/scratch/r1";
  one.ranks[0].run_dir.file_system = "tmpfs";
  EXPECT_EQ(finding_of(one), "");
  one.ranks[0].run_dir.writable = false;
  EXPECT_NE(finding_of(one).find(
                "refused: rank 0 on nid1 may not write to /scratch/r1, where /scratch/r1 would be\n"),
            std::string::npos);
}

TEST(Checks, SpaceForTheResults) {
  JobFacts s = healthy();
  s.options.run_dir = "/scratch/r1";
  s.results_bytes = uint64_t{6} << 30;
  s.ranks[0].run_dir.free_bytes = uint64_t{6} << 30;
  EXPECT_EQ(finding_of(s), "");
  s.ranks[0].run_dir.free_bytes = uint64_t{5} << 30;
  EXPECT_NE(
      finding_of(s).find("refused: /scratch/r1 has 5 GiB of free space, but the results may take 6 GiB\n"),
      std::string::npos);
}

TEST(Checks, TimeThatIsNotEnoughToLoad) {
  JobFacts s = healthy();
  s.options.engine.tensor_size = 2;
  for (RankFacts& facts : s.ranks) facts.weight_bytes = 70'500'000'000;
  s.seconds_left = 142;
  EXPECT_EQ(finding_of(s), "");
  s.seconds_left = 120.4;
  EXPECT_NE(
      finding_of(s).find("warning: 120 s are left until the job stops itself, loading 131 GiB takes about "
                         "141 s\n"),
      std::string::npos)
      << finding_of(s);
}

TEST(Checks, ClocksThatProveToDiffer) {
  JobFacts s = healthy(3, 1);
  s.ranks[1].clock = {1002.5, 2.0};
  EXPECT_EQ(finding_of(s), "");
  s.ranks[2].clock = {997.5, 0.1};
  EXPECT_NE(finding_of(s).find("warning: the clock of nid3 is 2.5 s behind that of nid1\n"),
            std::string::npos);
  EXPECT_NE(finding_of(s).find("--exclude=nid3"), std::string::npos);
}

TEST(Checks, NotesAreForWhoAsks) {
  JobFacts s = healthy();
  s.ranks[0].open_files = {1024, 4096};
  s.ranks[1].core_size = {};
  s.ranks[1].huge_pages = false;
  const std::string text = finding_of(s);
  EXPECT_NE(text.find("note: only 1024 files may be open on nid1\n"), std::string::npos);
  EXPECT_NE(text.find("note: core files are allowed (limit: unlimited)\n"), std::string::npos);
  EXPECT_NE(text.find("note: transparent huge pages are off on nid1\n"), std::string::npos);
  EXPECT_EQ(preflight_text(run_checks(s)), preflight_text(run_checks(healthy())));
}

TEST(Checks, LittleSharedMemoryIsAWarningWhereSumsWouldUseIt) {
  JobFacts s = healthy(2, 2);
  s.options.engine.tensor_size = 2;
  s.ranks[2].shared_memory = s.ranks[3].shared_memory = uint64_t{1} << 20;
  EXPECT_EQ(finding_of(s),
            "warning: /dev/shm of nid2 has 1 MiB free, and sums in it take 2.01 MiB\n"
            "  why: tensor groups without it add by messages: the same results, more slowly\n"
            "  try: a larger /dev/shm (of a container: --shm-size 1g), or --all-reduce messages\n");
  const JobFacts small = s;
  s.options.engine.all_reduce = AllReduce::messages;
  EXPECT_EQ(finding_of(s), "");
  s = small;
  s.options.engine.tensor_size = 1;
  EXPECT_EQ(finding_of(s), "");
  s = small;
  s.ranks[2].shared_memory = s.ranks[3].shared_memory = uint64_t{3} << 20;
  EXPECT_EQ(finding_of(s), "");
  s.plan.grid = {.tensor = 2, .context = 2};
  EXPECT_NE(findings(s).find("has 3 MiB free, and sums in it take 4.02 MiB\n"), std::string::npos)
      << findings(s);
}

TEST(Checks, MemoryOfSumsCounts) {
  JobFacts s = healthy(1, 2);
  s.options.engine.model = "m";
  s.options.engine.tensor_size = 2;
  s.options.engine.kv_memory = uint64_t{1} << 30;
  for (RankFacts& facts : s.ranks) {
    facts.weight_bytes = facts.kv_bytes = uint64_t{1} << 30;
    facts.free_memory = uint64_t{4} << 30;
  }
  EXPECT_EQ(
      finding_of(s).find("refused: the ranks 0-1 on nid1 need 2 GiB for weights, 2.01 MiB for sums and 2 GiB "
                         "for the KV cache, but 4 GiB are free\n"),
      0U);
  s.options.engine.all_reduce = AllReduce::messages;
  EXPECT_EQ(finding_of(s), "");
}

TEST(RankTable, HasALineARankUpToSomeNumber) {
  JobFacts s = healthy(2, 2);
  s.plan.grid = {2, 1, 2};
  EXPECT_EQ(rank_table(s, 3),
            "rank  node  tp  dp  CPUs    device\n"
            "   0  nid1   0   0  0-3     cpu\n"
            "   1  nid1   1   0  4-7     cpu\n"
            "   2  nid2   0   1  0-3     cpu\n"
            "(1 more)\n");
  s.plan.grid = {.tensor = 1, .pipeline = 2, .data = 2};
  EXPECT_TRUE(
      rank_table(s).starts_with("rank  node  tp  pp  dp  CPUs    device\n"
                                "   0  nid1   0   0   0  0-3     cpu\n"
                                "   1  nid1   0   1   0  4-7     cpu\n"))
      << rank_table(s);
  JobFacts gpus = healthy_gpus();
  gpus.plan.grid = {1, 1, 4};
  EXPECT_NE(rank_table(gpus).find("   3  nid1   0   3  12-15   0000:03:00.0 GPU-3\n"), std::string::npos)
      << rank_table(gpus);
}

}  // namespace
}  // namespace maniple
