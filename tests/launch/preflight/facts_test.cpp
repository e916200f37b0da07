#include <launch/preflight/facts.hpp>
#include <launch/preflight/job_facts.hpp>
#include <launch/preflight/preflight.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/start/start.hpp>
#include <support/temp_directory.hpp>
#include <support/thread_world.hpp>

#include <gtest/gtest.h>

#include <array>

namespace maniple {
namespace {

TEST(Texts, OfRanges) {
  EXPECT_EQ(ranges_text(std::array{0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_EQ(ranges_text({}), "-");
}

TEST(Facts, OfThisMachineAreSane) {
  const RankFacts facts = read_facts();
  EXPECT_FALSE(facts.cpus.empty());
  EXPECT_GE(static_cast<size_t>(facts.cpus_of_node), facts.cpus.size());
  EXPECT_GT(facts.free_memory, 0u);
  EXPECT_TRUE(facts.versions.contains("maniple"));
  EXPECT_EQ(facts.versions, read_facts().versions);
}

TEST(Facts, OfAMachineThatTellsNothing) {
  const TempDirectory tree;
  const RankFacts facts = read_facts(tree.path());
  EXPECT_TRUE(facts.numa_nodes.empty() && facts.fabric.empty() && facts.subnets.empty());
  EXPECT_TRUE(facts.huge_pages);
  EXPECT_EQ(facts.memory_limit, ResourceLimit::unlimited);
}

TEST(Facts, NumaNodesAreThoseOfTheMask) {
  const TempDirectory tree;
  const int mine = read_facts().cpus.front();
  tree.write("sys/devices/system/node/node0/cpulist", "100000-100003\n");
  tree.write("sys/devices/system/node/node1/cpulist", "99999," + std::to_string(mine) + "\n");
  tree.write("sys/devices/system/node/online", "0-1\n");
  EXPECT_EQ(read_facts(tree.path()).numa_nodes, std::vector<int>{1});
}

TEST(Facts, OnlyActivePortsAreAFabric) {
  const TempDirectory tree;
  tree.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  tree.write("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
  tree.write("sys/class/cxi/cxi0/device", "");
  EXPECT_EQ(read_facts(tree.path()).fabric, (std::vector<std::string>{"cxi0", "mlx5_0/1"}));
}

TEST(Facts, GpusOfANodeAreThoseThatItsDriverKnows) {
  const TempDirectory tree;
  EXPECT_EQ(read_facts(tree.path()).gpus_of_node, 0);
  tree.write("proc/driver/nvidia/gpus/0000:41:00.0/information", "");
  tree.write("proc/driver/nvidia/gpus/0000:81:00.0/information", "");
  EXPECT_EQ(read_facts(tree.path()).gpus_of_node, 2);
}

TEST(Facts, SubnetsAreThoseWithoutAGatewayThatOtherNodesCanBeIn) {
  const TempDirectory tree;
  tree.write("proc/net/route",
             "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
             "eno1\t00000000\t0100010A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
             "eno1\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
             "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
             "ib0\t00A8A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n");
  const std::vector<Subnet> subnets = read_facts(tree.path()).subnets;
  ASSERT_EQ(subnets.size(), 2u);
  EXPECT_EQ(subnets[0].network, "10.1.0.0/16");
  EXPECT_EQ(subnets[1].interface + " " + subnets[1].network, "ib0 192.168.168.0/24");
}

TEST(Facts, HugePagesThatAreOff) {
  const TempDirectory tree;
  tree.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_FALSE(read_facts(tree.path()).huge_pages);
}

TEST(Facts, TwoBuildsOfALibraryDifferThoughTheirNamesDoNot) {
  const TempDirectory tree;
  tree.write("proc/self/exe", "program");
  tree.write("proc/self/maps",
             "7f00-7f01 r--p 00000000 08:01 1 /opt/lib/libnccl.so.2.28.9\n"
             "7f01-7f02 r-xp 00001000 08:01 1 /opt/lib/libnccl.so.2.28.9\n"
             "7f02-7f03 rw-p 00000000 00:00 0\n"
             "7f03-7f04 r--p 00000000 08:01 2 /usr/lib/libncclutil.so.1\n");
  tree.write("opt/lib/libnccl.so.2.28.9", "one build");
  const auto first = read_facts(tree.path()).versions;
  tree.write("opt/lib/libnccl.so.2.28.9", "other one");
  const auto second = read_facts(tree.path()).versions;
  EXPECT_EQ(first.size(), 2u);
  EXPECT_EQ(first.at("maniple"), second.at("maniple"));
  EXPECT_TRUE(first.at("libnccl").starts_with("libnccl.so.2.28.9 "));
  EXPECT_NE(first.at("libnccl"), second.at("libnccl"));
}

TEST(Facts, StorageIsThatOfTheNearestParentThatExists) {
  const TempDirectory tree;
  tree.write("proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\nfs:/x " + tree.path().native() +
                                     " lustre rw 0 0\nnone " + tree.path().native() + "x tmpfs rw 0 0\n");
  const StorageFacts facts = read_storage(tree.path() / "runs/r1", tree.path());
  EXPECT_EQ(facts.path, tree.path());
  EXPECT_EQ(facts.file_system, "lustre");
  EXPECT_GT(facts.free_bytes, 0u);
  EXPECT_EQ(read_storage("/", tree.path()).file_system, "ext4");
}

TEST(Facts, TravelWhole) {
  run_ranks(3, [](World& world) {
    RankFacts mine;
    mine.cpus = {world.rank(), 7};
    mine.locked_memory = {1, ResourceLimit::unlimited};
    mine.fabric = {"mlx5_0/1"};
    mine.cpu_paths = {"avx2", "portable"};
    mine.subnets = {{"eno1", "10.0.0.0/8"}};
    mine.gpus = {{"GPU-1", "0000:41:00.0", 1, {"GPU-2"}}};
    mine.versions = {{"maniple", "1"}};
    mine.run_dir.path = "/scr\xff";  // names of files are bytes
    mine.weight_bytes = uint64_t{1} << 40;
    const std::vector<RankFacts> all = gather_facts(world, mine);
    EXPECT_EQ(all.size(), 3u);
    const RankFacts& last = all.back();
    EXPECT_EQ(last.cpus, (std::vector<int>{2, 7}));
    EXPECT_EQ(last.locked_memory.hard, ResourceLimit::unlimited);
    EXPECT_EQ(last.subnets.at(0).network, "10.0.0.0/8");
    EXPECT_EQ(last.gpus.at(0).numa_node, 1);
    EXPECT_EQ(last.gpus.at(0).peers, std::vector<std::string>{"GPU-2"});
    EXPECT_EQ(last.cpu_paths, mine.cpu_paths);
    EXPECT_EQ(last.run_dir.path, "/scr\xff");
    EXPECT_EQ(last.weight_bytes, uint64_t{1} << 40);
  });
}

TEST(Clock, ReadingsOfOneMachineAgreeWithinTheirSlack) {
  run_ranks(4, [](World& world) {
    RankFacts mine;
    mine.clock = read_clock(world);
    const std::vector<RankFacts> all = gather_facts(world, mine);
    for (const RankFacts& facts : all)
      EXPECT_LE(std::abs(facts.clock.middle - mine.clock.middle),
                facts.clock.slack + mine.clock.slack + 1e-4);
  });
}

TEST(Preflight, OfOneProcessUsesItsMask) {
  SelfWorld world;
  JobOptions options;
  JobPlan plan;
  plan.backend = {BackendKind::cpu, CpuPath::portable};
  EXPECT_GE(place(world, options.engine, plan).threads, 1);
  options.engine.threads = 3;
  EXPECT_EQ(place(world, options.engine, plan).threads, 3);
  EXPECT_EQ(run_preflight(world, options, {}).job.ranks[0].weight_bytes, 0u);
}

TEST(Preflight, KnowsWhatAShareOfTheModelTakes) {
  JobOptions options;
  const BackendChoice backend{BackendKind::cpu, CpuPath::portable};
  options.engine.model = MANIPLE_TEST_DATA "/models/shakespeare";
  uint64_t whole = 0;
  SelfWorld world;
  const ModelConfig config = read_model_config(options.engine.model);
  whole = run_preflight(world, options, plan_job(world.locations(), options.engine, backend, &config))
              .job.ranks[0]
              .weight_bytes;
  EXPECT_GT(whole, uint64_t{5} << 20);
  options.engine.tensor_size = 2;
  options.engine.kv_memory = 12345;
  run_ranks(2, [&](World& ranks) {
    const Preflight preflight =
        run_preflight(ranks, options, plan_job(ranks.locations(), options.engine, backend, &config));
    for (const RankFacts& facts : preflight.job.ranks) {
      EXPECT_LT(facts.weight_bytes, whole * 2 / 3);
      EXPECT_GT(facts.weight_bytes, whole / 3);
      EXPECT_EQ(facts.kv_bytes, 12345u);
    }
    EXPECT_EQ(preflight.results.empty(), ranks.rank() != 0);
  });
}

}  // namespace
}  // namespace maniple
