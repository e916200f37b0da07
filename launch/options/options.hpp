// The command line. Every mistake in it is an Error (usage) that names the nearest correct option or value.
#pragma once

#include <launch/input/sampling_fields.hpp>
#include <launch/options/lengths.hpp>
#include <launch/options/overwrite.hpp>
#include <launch/options/report_options.hpp>
#include <launch/options/same_options.hpp>
#include <launch/options/scaling_options.hpp>
#include <launch/process/launcher.hpp>
#include <launch/process/stop_clock.hpp>
#include <launch/run_directory/ledger.hpp>
#include <parallel/process_grid.hpp>
#include <parallel/world.hpp>
#include <runtime/engine_options.hpp>

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace maniple {

// The share of all requests that may fail before the exit code is 1.
struct FailOn {
  double percent = 0;
};

// Options of every command that runs on all ranks.
struct JobOptions {
  EngineOptions engine;           // preflight sets threads and CPUs, agree_on_job the types in force
  std::optional<DType> dtype;     // absent (--dtype auto): job_dtype (run_identity) decides
  std::optional<int> threads;     // absent: from the CPUs of the rank
  bool backend_is_auto = false;   // --backend auto
  bool cpu_path_is_auto = false;  // --cpu-path auto
  GpuTransport transport = GpuTransport::automatic;
  bool allow_cross_node_tp = false;
  std::chrono::milliseconds start_deadline{};  // for the ranks to find each other
  std::chrono::milliseconds deadline{};        // from a fault to the end of all ranks
  std::optional<std::filesystem::path> run_dir;
  GivenOptions given;
  std::optional<Error> mistake;  // why the command line could not be read: given is empty then
  Launch launch;                 // set by main
  TimeLimit time_limit;          // main sets its Slurm part
};

struct GenerateOptions : JobOptions {  // with a run_dir there is no out
  std::optional<std::string> prompt;
  std::vector<std::string> in;        // paths, or "-" for stdin; exactly one of prompt and in is set
  bool chat = false;                  // the prompt, or each line of text files, is a user's message
  std::optional<std::string> system;  // the system message before it; only with chat
  std::optional<std::string>
      chat_template;               // its name; absent: "default", or "tool_use" where there are tools
  bool follow = false;             // `in` is one pipe, served as its lines arrive
  std::optional<std::string> out;  // a path, or "-" for stdout
  Overwrite overwrite;             // main sets `requeued`, here and below
  SamplingFields sampling;         // without seed: a request's seed follows from the run's
  std::optional<uint64_t> seed;    // of the run
  Shard shard;
  FailOn fail_on;
  bool quiet = false;  // stderr has warnings and errors only
  bool retry_errors = false;
  bool exit_zero_on_stop = false;
  std::optional<std::string> record;  // a path, or "off"; absent: in the run directory, if there is one
  size_t record_limit = 0;            // bytes of its log
  std::chrono::milliseconds sync_interval{};
  std::chrono::milliseconds takeover_after{};  // silence of another job in the run directory
};

struct DoctorOptions : GenerateOptions {  // the model (else an empty path) and the requests are optional
  bool quick = false;                     // no measurements
};

// What `bench` measures; for comm, by which operations of which of the job's groups.
enum class BenchKind : uint8_t { throughput, latency, comm, load, kernels };
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
  bool quiet = false;
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

struct StatusOptions {
  std::vector<std::filesystem::path> run_dirs;
  bool rc = false;     // exit with the worst code of the runs
  bool watch = false;  // until they end
  bool json = false;
};

struct MergeOptions {
  std::filesystem::path out;
  Overwrite overwrite;
  std::vector<std::filesystem::path> run_dirs;
};

struct TokenizeOptions {
  std::filesystem::path model;
  std::string in;
  std::string out = "-";
  Overwrite overwrite;
  bool decode = false;
  bool chat = false;  // lines are chat requests; neither with decode nor with special
  std::optional<std::string> chat_template;
  bool special = false;  // encode: apply the tokenizer's template; decode: keep special tokens in the text
};

struct ConvertOptions {
  std::filesystem::path from,
      to;  // a directory and a file of a packed model, or the other way; with check no `to`
  Overwrite overwrite;
  bool check = false;
  bool verify = false;
  int shards = 8;
  size_t align = 4096;
  unsigned threads = 0;  // 0: of the machine
};

// Text to print on stdout: help or version.
struct Notice {
  std::string text;
};

using CommandLine = std::variant<Notice, GenerateOptions, DoctorOptions, BenchOptions, TokenizeOptions,
                                 ConvertOptions, StatusOptions, MergeOptions, ReportOptions, ScalingOptions>;

// args: without the program's name. Reads the file of --config; fails (input) if it cannot be opened.
CommandLine parse_arguments(std::span<const std::string> args);

}  // namespace maniple
