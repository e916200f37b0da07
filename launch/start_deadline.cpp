#include <kernels/support/check.hpp>
#include <launch/report.hpp>
#include <launch/start_deadline.hpp>

#include <utility>

namespace maniple {

StartDeadline::StartDeadline(int rank, FaultHandler on_fault, std::chrono::seconds limit)
    : end_(limit + std::chrono::seconds(rank == 0 ? 0 : 10), [rank, limit, on_fault = std::move(on_fault)] {
        const Error error(ExitCode::fault,
                          fmt::format("the ranks did not find each other within {} s", limit.count()),
                          "a rank did not start, stands still, or cannot be reached over the network",
                          "look at the nodes of the job, and try a small MPI program in the same layout");
        say(error_block(error, fmt::format("rank {}", rank)));
        on_fault(static_cast<int>(error.code()));
      }) {}

}  // namespace maniple
