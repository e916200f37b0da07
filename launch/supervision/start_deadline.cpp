#include <kernels/support/check.hpp>
#include <launch/output/report.hpp>
#include <launch/supervision/start_deadline.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace maniple {
namespace {

using std::chrono::milliseconds;
using Seconds = std::chrono::duration<double>;

milliseconds until_notice(milliseconds limit) {
  return std::min<milliseconds>(limit / 5, std::chrono::minutes(1));
}

void report_missing_ranks(const RollCall& ranks, int count, milliseconds limit) {
  if (!ranks.reports()) return;
  say(
      fmt::format("maniple: start: ranks are missing: {} have not found each other for {:g} s\n{}"
                  "  the job ends at {:g} s (--start-deadline)\n",
                  count > 0 ? fmt::format("the {} of this job", count) : "those of this job",
                  Seconds(until_notice(limit)).count(), ranks.text(), Seconds(limit).count()));
}

void report_end(RollCall& ranks, int rank, Seconds limit) {
  const Error error(ExitCode::fault,
                    fmt::format("the ranks did not find each other within {:g} s", limit.count()),
                    "a rank did not start, hangs, or cannot be reached over the network",
                    "look at the nodes of the job, and try a small MPI program in the same layout");
  if (!ranks.reports())
    return std::this_thread::sleep_for(std::chrono::seconds(2));  // the first process that ends ends the job
  say(error_block(error, fmt::format("rank {}", rank)) + ranks.text());
  ranks.reported();
}

}  // namespace

StartDeadline::StartDeadline(const Launch& launch, FaultHandler on_fault, milliseconds limit)
    : ranks_(launch),
      notice_(until_notice(limit),
              [this, count = launch.ranks, limit] { report_missing_ranks(ranks_, count, limit); }),
      end_(limit + std::chrono::seconds(launch.rank == 0 ? 0 : 10),
           [this, rank = launch.rank, on_fault = std::move(on_fault), limit] {
             report_end(ranks_, rank, limit);
             ranks_.forget_name();
             on_fault(static_cast<int>(ExitCode::fault));
           }) {}

}  // namespace maniple
