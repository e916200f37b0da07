// The options of `bench`.
#pragma once

#include <launch/options/job_options.hpp>
#include <launch/options/parsed.hpp>
#include <launch/output/output_file.hpp>
#include <launch/tools/options/lengths.hpp>
#include <parallel/process_grid.hpp>

#include <optional>
#include <string>
#include <vector>

namespace maniple {

// What `bench` measures; for comm, by which operations of which of the job's groups.
enum class BenchKind : uint8_t { throughput, latency, comm, load, kernels };
constexpr bool serves(BenchKind kind) { return kind == BenchKind::throughput || kind == BenchKind::latency; }
enum class CommOp : uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, sendrecv };

constexpr std::string_view name_of(BenchKind kind) {
  constexpr std::string_view names[] = {"throughput", "latency", "comm", "load", "kernels"};
  return names[static_cast<size_t>(kind)];
}
constexpr std::string_view name_of(CommOp op) {
  constexpr std::string_view names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                        "sendrecv"};
  return names[static_cast<size_t>(op)];
}

struct BenchOptions : JobOptions {  // without a model its path is empty
  BenchKind bench = BenchKind::comm;
  int warmup = 1;  // repeats that do not count
  int repeats = 6;
  std::optional<std::string> json;    // a path, or "-" for stdout
  std::optional<std::string> record;  // a path
  Overwrite overwrite;
  bool require_valid = false;  // an invalid result is a failure
  // throughput, latency
  Lengths lengths;
  std::vector<std::string> in;           // files with requests, or "-" for stdin; then the lengths are theirs
  uint32_t prefix = 0;                   // tokens that all prompts begin with
  uint64_t seed = 0;                     // of lengths, prompts and random weights
  std::optional<uint32_t> num_prompts;   // of throughput; absent: 1000, or all of a file
  std::vector<uint32_t> batch_sizes{8};  // of latency
  // comm; bytes
  std::vector<CommOp> ops{CommOp::all_reduce, CommOp::all_gather, CommOp::reduce_scatter, CommOp::broadcast,
                          CommOp::sendrecv};
  std::vector<GroupAxis> groups{group_axes.begin(), group_axes.end()};
  size_t begin = 8, end = size_t{128} << 20;
  size_t factor = 2;  // from one size to the next
  bool check = true;  // count wrong values
  // load
  bool cold = false;  // not from the page cache
  // kernels
  std::vector<uint32_t> shapes_of_tp;  // empty: --tp
};

Parsed<BenchOptions> parse_bench(Grammar& grammar, Words args, const Launch& launch);

}  // namespace maniple
