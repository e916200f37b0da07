#include <gtest/gtest.h>
#include <parallel/mpi/mpi_world.hpp>
#include <support/mpi_main.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace maniple {

namespace {

constexpr unsigned seconds_per_test = 60;

World* test_world = nullptr;
char running[256] = "start-up";  // read by a signal handler

// A collective that not all ranks join would hang: the first rank that waits too long ends the job.
void end_hanging_job(int) {
  const char* const parts[] = {"hangs in ", running, "\n"};
  for (const char* part : parts)
    [[maybe_unused]] const auto written = write(STDERR_FILENO, part, std::strlen(part));
  std::_Exit(1);
}

class Deadline : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    std::snprintf(running, sizeof running, "%s.%s", test.test_suite_name(), test.name());
    alarm(seconds_per_test);
  }
};

// Rank 0 reports as usual, the other ranks only failures.
class FailurePrinter : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* const file = result.file_name() ? result.file_name() : "";
    std::fprintf(stderr, "[rank %d] %s: %s:%d: %s\n", test_world->rank(), running, file, result.line_number(),
                 result.message());
  }
};

int expected_ranks(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--ranks=", 8) == 0) return std::atoi(argv[i] + 8);
  return 0;
}

// Through the host where ranks share a GPU, unless --transport=nccl: from 2.30 on NCCL can do it too.
GpuTransport gpu_transport(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--transport=nccl") == 0) return GpuTransport::nccl;
  return GpuTransport::automatic;
}

int run_all_tests(World& world, int ranks) {
  test_world = &world;
  if (ranks != world.size()) {
    std::fprintf(stderr, "[rank %d] %d ranks were started, --ranks=N says %d\n", world.rank(), world.size(),
                 ranks);
    return 1;
  }
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  listeners.Append(new Deadline);
  const int result = RUN_ALL_TESTS();
  // A failure on any rank fails rank 0, whose report is read.
  int failed = 0;
  for (const std::string& theirs : world.all_gather_bytes(std::to_string(result))) failed += theirs != "0";
  if (world.rank() == 0 && failed > 0) std::fprintf(stderr, "%d ranks have failures\n", failed);
  return failed > 0 ? 1 : 0;
}

}  // namespace

World& mpi_test_world() { return *test_world; }

}  // namespace maniple

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // An exception ends the process and with it the job: the other ranks would wait for this rank.
  GTEST_FLAG_SET(catch_exceptions, false);
  std::signal(SIGALRM, maniple::end_hanging_job);
  alarm(maniple::seconds_per_test);
  const auto world = maniple::make_mpi_world(std::_Exit, maniple::gpu_transport(argc, argv));
  return maniple::run_all_tests(*world, maniple::expected_ranks(argc, argv));
}
