#include <kernels/support/host_memory.hpp>
#include <support/temp_directory.hpp>

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/resource.h>

#include <fstream>

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

// The peak of the process, in bytes, as the record of a job has it.
size_t peak() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) << 10;
}

TEST(HostMemory, ForgetsAPeakThatIsOver) {
  constexpr size_t bytes = size_t{256} << 20;
  const size_t before = peak();
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::munmap(memory, bytes);
  ASSERT_GE(peak(), bytes);
  if (!std::ofstream("/proc/self/clear_refs")) GTEST_SKIP() << "the system does not let it forget";
  forget_peak_memory();
  EXPECT_LT(peak(), before + bytes / 2);
}

TEST(HostMemory, LeavesTheAddressesBelowTheLimit) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &limit), 0);
  if (limit.rlim_max != RLIM_INFINITY) GTEST_SKIP() << "there is a hard limit";
  rlimit wide = limit;
  wide.rlim_cur = rlim_t{1} << 46;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &wide), 0);
  const size_t free = free_addresses();
  ::setrlimit(RLIMIT_AS, &limit);
  EXPECT_LT(free, wide.rlim_cur);
  EXPECT_GT(free, wide.rlim_cur / 4);  // sanitizers reserve much
  EXPECT_EQ(free_addresses() == HostMemory::unlimited, limit.rlim_cur == RLIM_INFINITY);
}

}  // namespace
}  // namespace maniple
