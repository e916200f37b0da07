#include <kernels/support/check.hpp>
#include <launch/report.hpp>
#include <launch/start_deadline.hpp>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace maniple {
namespace {

void wait_and_end(const std::stop_token& dismissed, int rank, std::chrono::seconds limit) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  const std::chrono::seconds grace(rank == 0 ? 0 : 10);
  wake.wait_for(lock, dismissed, limit + grace, [] { return false; });
  if (dismissed.stop_requested()) return;
  const Error error(ExitCode::fault,
                    fmt::format("the ranks did not find each other within {} s", limit.count()),
                    "a rank did not start, stands still, or cannot be reached over the network",
                    "look at the nodes of the job, and try a small MPI program in the same layout");
  std::fputs(error_block(error, fmt::format("rank {}", rank)).c_str(), stderr);
  std::_Exit(static_cast<int>(error.code()));
}

}  // namespace

StartDeadline::StartDeadline(int rank, std::chrono::seconds limit)
    : thread_([rank, limit](const std::stop_token& dismissed) { wait_and_end(dismissed, rank, limit); }) {}

}  // namespace maniple
