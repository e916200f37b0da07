// bench comm: the time of collective operations in the groups that the job's layout has.
#pragma once

#include <kernels/backend.hpp>
#include <launch/tools/bench/bench_job.hpp>
#include <launch/tools/bench/messages.hpp>
#include <runtime/job_plan.hpp>

namespace maniple {

// GB/s, 10^9 bytes.
double algorithm_bandwidth(uint64_t bytes, double seconds);
// What the slowest link carries over what the operation moves, as nccl-tests define it: 2 (n - 1) / n for
// all_reduce, (n - 1) / n for all_gather and reduce_scatter (whose bytes are those of the whole), 1 for
// broadcast and sendrecv.
double bus_factor(CommOp op, int ranks);

// One operation on one size, in all groups of an axis at the same time.
struct CommRow {
  GroupAxis axis = GroupAxis::tensor;
  CommOp op = CommOp::all_reduce;
  DType type = DType::fp32;
  int ranks = 1;  // of a group
  uint64_t bytes = 0;
  int calls = 1;                                 // in a repeat
  Interval seconds{};                            // of a call, of the slowest rank
  std::vector<double> repeats{};                 // the same of each repeat
  std::optional<uint64_t> wrong = std::nullopt;  // values that arrived, of all ranks; absent: not checked

  double algbw() const { return algorithm_bandwidth(bytes, seconds.median); }
  double busbw() const { return algbw() * bus_factor(op, ranks); }
};
std::string table_line(const CommRow& row);
nlohmann::ordered_json row_json(const CommRow& row);

// Collective. Nothing after a stop.
std::optional<CommRow> measure_row(BenchJob& job, Messages& messages, GroupAxis axis, CommOp op,
                                   int64_t count);
std::optional<BenchResult> bench_comm(BenchJob& job, const JobPlan& plan, Backend& backend);

}  // namespace maniple
