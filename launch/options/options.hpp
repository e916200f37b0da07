// The command line. Everything wrong with it is an Error (usage) that names the nearest right thing.
#pragma once

#include <launch/input/sampling_fields.hpp>
#include <launch/options/overwrite.hpp>
#include <launch/options/same_options.hpp>
#include <launch/process/launcher.hpp>
#include <launch/process/stop_clock.hpp>
#include <launch/run_directory/ledger.hpp>
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

// Of all requests, how many may fail before the exit code is 1.
struct FailOn {
  double percent = 0;
};

// What every command that all ranks work on is told.
struct JobOptions {
  EngineOptions engine;        // its threads and CPUs are preflight's, its dtype is what is in force
  std::optional<DType> dtype;  // absent: job_dtype (launch/run_identity), as for --dtype auto
  std::optional<int> threads;  // absent: from the CPUs of the rank
  bool any_backend = false;    // --backend auto
  bool any_cpu_path = false;   // --cpu-path auto
  GpuTransport transport = GpuTransport::automatic;
  bool allow_cross_node_tp = false;
  std::chrono::milliseconds start_deadline{};  // for the ranks to find each other
  std::chrono::milliseconds deadline{};        // from a fault to the end of all ranks
  std::optional<std::filesystem::path> run_dir;
  GivenOptions given;
  std::optional<Error> mistake;  // why the command line could not be read: given is empty then
  Launch launch;                 // main's
  TimeLimit time_limit;          // its Slurm part is main's
};

struct GenerateOptions : JobOptions {  // with a run_dir there is no out
  std::optional<std::string> prompt;
  std::vector<std::string> in;        // paths, or "-" for stdin; exactly one of prompt and in is there
  bool chat = false;                  // the prompt, or each line of text files, is a user's message
  std::optional<std::string> system;  // before it; with chat alone
  bool follow = false;                // `in` is one pipe, served as its lines come
  std::optional<std::string> out;     // a path, or "-" for stdout
  Overwrite overwrite;                // whether it was requeued is main's, here and below
  SamplingFields sampling;            // without seed: that of a request is made from the run's
  std::optional<uint64_t> seed;       // of the run
  Shard shard;
  FailOn fail_on;
  bool quiet = false;  // stderr has warnings and errors only
  bool retry_errors = false;
  bool exit_zero_on_stop = false;
  std::chrono::milliseconds sync_interval{};
  std::chrono::milliseconds takeover_after{};  // silence of another job in the run directory
};

struct DoctorOptions : GenerateOptions {  // neither a model (an empty path) nor requests need be there
  bool quick = false;                     // no measurements
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
  bool chat = false;     // lines are chat requests; neither with decode nor with special
  bool special = false;  // encode: apply the tokenizer's template; decode: keep special tokens in the text
};

// Help or version: to be printed on stdout.
struct Notice {
  std::string text;
};

using CommandLine =
    std::variant<Notice, GenerateOptions, DoctorOptions, TokenizeOptions, StatusOptions, MergeOptions>;

// args: without the program's name. Reads the file named by --config; fails (input) when that cannot be
// opened.
CommandLine parse_arguments(std::span<const std::string> args);

}  // namespace maniple
