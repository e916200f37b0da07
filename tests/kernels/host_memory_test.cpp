#include <kernels/support/host_memory.hpp>
#include <support/temp_directory.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

TEST(HostMemory, OfAMachineWithoutLimitsIsWhatIsAvailable) {
  const TempDirectory tree;
  EXPECT_EQ(host_memory(tree.path()).limit, HostMemory::unlimited);
  tree.write("proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n");
  tree.write("proc/self/cgroup", "0::/job\n");
  tree.write("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(host_memory(tree.path()).free, 1024u * 1024);
  EXPECT_EQ(host_memory(tree.path()).limit, HostMemory::unlimited);
}

TEST(HostMemory, OfVersion2IsTheTightestOfAllAncestorsWithCachedFilesCountedAsFree) {
  const TempDirectory tree;
  tree.write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  tree.write("proc/self/cgroup", "0::/job/step\n");
  tree.write("sys/fs/cgroup/job/step/memory.max", "9000\n");
  tree.write("sys/fs/cgroup/job/memory.max", "5000\n");
  tree.write("sys/fs/cgroup/job/memory.current", "3000\n");
  tree.write("sys/fs/cgroup/job/memory.stat", "anon 7\ninactive_file 1000\n");
  EXPECT_EQ(host_memory(tree.path()).limit, 5000u);
  EXPECT_EQ(host_memory(tree.path()).free, 3000u);
}

TEST(HostMemory, OfVersion1KnowsItsWayToSayNoLimit) {
  const TempDirectory tree;
  tree.write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  tree.write("proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/slurm/job_7\n");
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(host_memory(tree.path()).limit, HostMemory::unlimited);
  tree.write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "4000\n");
  tree.write("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(host_memory(tree.path()).limit, 4000u);
  EXPECT_EQ(host_memory(tree.path()).free, 3000u);
}

}  // namespace
}  // namespace maniple
