#include <kernels/support/counted.hpp>
#include <kernels/support/number_text.hpp>
#include <launch/preflight/job_facts.hpp>
#include <launch/tools/bench/comm.hpp>
#include <parallel/timed_communicator.hpp>
#include <runtime/collective_phase.hpp>

#include <algorithm>
#include <array>
#include <numeric>

namespace maniple {
namespace {

std::string_view type_name(DType type) {
  return type == DType::bf16 ? "bfloat16" : type == DType::fp16 ? "float16" : "float32";
}

// "1MiB", "8B"
std::string size_name(uint64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes % 1024 == 0 && unit + 1 < units.size(); bytes /= 1024) ++unit;
  return fmt::format("{}{}", bytes, units[unit]);
}

std::string name_of(const CommRow& row) {
  return fmt::format("{} {} {}", name_of(row.axis), name_of(row.op), size_name(row.bytes));
}

std::vector<int> ranks_of(GroupAxis axis, const World& world, const RankPlan& plan) {
  if (axis == GroupAxis::tensor) return plan.groups.tensor;
  if (axis == GroupAxis::data) return plan.groups.data;
  if (axis == GroupAxis::context) return plan.groups.context;
  if (axis == GroupAxis::expert) return plan.groups.expert;
  if (axis == GroupAxis::expert_tensor) return plan.groups.expert_tensor;
  if (axis == GroupAxis::pipeline) return plan.groups.stages;
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return everyone;
}

// Elements of the messages.
std::vector<int64_t> counts_of(const BenchOptions& options, DType type) {
  std::vector<int64_t> counts;
  for (size_t bytes = options.begin; bytes <= options.end; bytes *= options.factor) {
    const auto count = static_cast<int64_t>(std::max<size_t>(bytes / size_of(type), 1));
    if (counts.empty() || count != counts.back()) counts.push_back(count);
  }
  return counts;
}

struct Axis {
  GroupAxis name = GroupAxis::tensor;
  std::vector<int> ranks;  // of this rank's group
};

// Those with something to measure. The others get a line that says why there is nothing.
std::vector<Axis> axes_of(BenchJob& job, const JobPlan& plan) {
  std::vector<Axis> axes;
  for (const GroupAxis axis : job.options().groups) {
    const std::vector<int> ranks = ranks_of(axis, job.world(), plan.rank(job.world().rank()));
    const auto same = std::ranges::find(axes, ranks, &Axis::ranks);
    if (ranks.size() == 1)
      job.print(fmt::format("# group {}: one rank, nothing to exchange\n", name_of(axis)));
    else if (same != axes.end())
      job.print(fmt::format("# group {}: the ranks of group {}\n", name_of(axis), name_of(same->name)));
    else
      axes.push_back({axis, ranks});
  }
  return axes;
}

std::string caption(const BenchJob& job, const Axis& axis, int ranks, const std::string& sums) {
  const size_t groups = static_cast<size_t>(ranks) / axis.ranks.size();
  return fmt::format(
      "# group {}: {} of {}{}; times of the slowest rank; {}, median [95 % CI]{}\n"
      "#{:>12} {:>10} {:8} {:14} {:>9}  {:20} {:>7} {:>7}  {}\n",
      name_of(axis.name), counted(groups, "group"), axis.ranks.size(), groups > 1 ? ", at the same time" : "",
      counted(static_cast<uint64_t>(job.options().repeats), "repeat"),
      sums.empty() ? "" : fmt::format("; sums by {}", sums), "bytes", "count", "type", "op", "time(us)",
      "[CI]", "algbw", "busbw", "#wrong");
}

// Names as that of the figure of merit: "busbw_tensor_all_reduce_1MiB".
std::string metric_name(std::string_view what, const CommRow& row) {
  return fmt::format("{}_{}_{}_{}", what, name_of(row.axis), name_of(row.op), size_name(row.bytes));
}

void add_samples(BenchResult& result, const CommRow& row) {
  Metric time{metric_name("time", row), "us", {}}, speed{metric_name("busbw", row), "GB/s", {}};
  for (const double seconds : row.repeats) {
    time.values.push_back(seconds * 1e6);
    speed.values.push_back(algorithm_bandwidth(row.bytes, seconds) * bus_factor(row.op, row.ranks));
  }
  result.samples.insert(result.samples.end(), {std::move(time), std::move(speed)});
}

// The largest message of the first operation stands for all.
BenchResult result_of(const std::vector<CommRow>& rows, bool check) {
  BenchResult result;
  uint64_t wrong = 0;
  result.numbers["rows"] = nlohmann::ordered_json::array();
  for (const CommRow& row : rows) {
    result.numbers["rows"].push_back(row_json(row));
    result.evidence.results.push_back({name_of(row), row.seconds});
    add_samples(result, row);
    wrong += row.wrong.value_or(0);
  }
  result.evidence.wrong = wrong;
  result.last_line = "# out of bounds values: " +
                     (check ? fmt::format("{} {}", wrong, wrong == 0 ? "OK" : "FAILED") : "not checked");
  if (!rows.empty()) {
    const auto other = std::ranges::find_if(
        rows, [&](const CommRow& row) { return row.axis != rows[0].axis || row.op != rows[0].op; });
    const CommRow& last = *std::prev(other);
    const std::string metric = metric_name("busbw", last);
    result.numbers["fom"] = {{"metric", metric}, {"value", last.busbw()}, {"unit", "GB/s"}};
    result.last_line += fmt::format("     fom: {} = {} GB/s", metric, number_text(last.busbw()));
  } else {
    result.last_line += "; every group has one rank: start two or more, mpirun -n 2 maniple bench comm";
  }
  result.last_line += '\n';
  return result;
}

}  // namespace

double algorithm_bandwidth(uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds / 1e9;
}

double bus_factor(CommOp op, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (op) {
    case CommOp::all_reduce:
      return 2 * others;
    case CommOp::all_gather:
    case CommOp::reduce_scatter:
      return others;
    case CommOp::broadcast:
    case CommOp::sendrecv:
      break;
  }
  return 1;
}

std::string table_line(const CommRow& row) {
  return fmt::format("{:>13} {:>10} {:8} {:14} {:>9}  {:20} {:>7} {:>7}  {}\n", row.bytes,
                     row.bytes / size_of(row.type), type_name(row.type), name_of(row.op),
                     microseconds(row.seconds.median), microseconds(row.seconds), number_text(row.algbw()),
                     number_text(row.busbw()), row.wrong ? fmt::format("{}", *row.wrong) : "N/A");
}

// NaN becomes null.
nlohmann::ordered_json row_json(const CommRow& row) {
  nlohmann::ordered_json json = {{"operation", name_of(row.op)},
                                 {"group", name_of(row.axis)},
                                 {"ranks", row.ranks},
                                 {"type", type_name(row.type)},
                                 {"bytes", row.bytes},
                                 {"calls", row.calls},
                                 {"time_us", row.seconds.median * 1e6},
                                 {"ci_low_us", row.seconds.low * 1e6},
                                 {"ci_high_us", row.seconds.high * 1e6},
                                 {"algbw_gb_s", row.algbw()},
                                 {"busbw_gb_s", row.busbw()}};
  json["wrong"] = row.wrong ? nlohmann::ordered_json(*row.wrong) : nlohmann::ordered_json();
  return json;
}

std::optional<CommRow> measure_row(BenchJob& job, Messages& messages, GroupAxis axis, CommOp op,
                                   int64_t count) {
  const auto calls =
      job.time_calls([&](int count_of_calls) { return messages.time(op, count, count_of_calls); });
  if (!calls) return std::nullopt;
  CommRow row{.axis = axis,
              .op = op,
              .type = messages.type(),
              .ranks = messages.ranks(),
              .bytes = static_cast<uint64_t>(count) * size_of(messages.type()),
              .calls = calls->count,
              .seconds = median_interval(calls->seconds),
              .repeats = calls->seconds};
  if (job.options().check) row.wrong = job.sum(messages.count_wrong(op, count));
  return row;
}

std::optional<BenchResult> bench_comm(BenchJob& job, const JobPlan& plan, Backend& backend) {
  job.activity().phase = Phase::step;  // each repeat is watched as a step is
  const DType type = job.options().engine.dtype.value_or(DType::fp32);
  const std::vector<int64_t> counts = counts_of(job.options(), type);
  const std::vector<Axis> axes = axes_of(job, plan);
  const size_t all = axes.size() * job.options().ops.size() * counts.size();
  std::vector<CommRow> rows;
  for (const Axis& axis : axes) {
    TimedCommunicator group(job.world().make_group(axis.ranks, *backend.ops, job.options().engine.all_reduce),
                            *backend.device, job.activity().waits);
    std::optional<Messages> messages;
    collective_phase(job.world(), [&] {
      const uint64_t message = static_cast<uint64_t>(counts.back()) * size_of(type);
      job.refuse_too_large(*backend.device, 3 * message, "messages of " + bytes_text(message),
                           "each rank of the node holds one to send, one to receive, and one to add up in",
                           "a smaller --end");
      messages.emplace(group, backend, type, counts.back());
    });
    job.print(caption(job, axis, job.world().size(), group.sums()));
    for (const CommOp op : job.options().ops)
      for (const int64_t count : counts) {
        job.progress(rows.size(), all,
                     fmt::format("{} {} {}", name_of(axis.name), name_of(op),
                                 size_name(static_cast<uint64_t>(count) * size_of(type))));
        const std::optional<CommRow> row = measure_row(job, *messages, axis.name, op, count);
        if (!row) return std::nullopt;
        rows.push_back(*row);
        job.print(table_line(*row));
      }
  }
  return result_of(rows, job.options().check);
}

}  // namespace maniple
