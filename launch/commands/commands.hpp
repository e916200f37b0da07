// The commands of a job: their options, which are constant once they are read, and what they do.
#pragma once

#include <kernels/support/sampling_params.hpp>
#include <launch/options/job_options.hpp>
#include <launch/options/parsed.hpp>
#include <launch/output/output_file.hpp>
#include <launch/run_directory/ledger.hpp>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

struct Supervision;

// generate: serves the requests of an input.
struct GenerateOptions : JobOptions {  // with a run_dir there is no out
  std::optional<std::string> prompt;
  std::vector<std::string> in;        // paths, or "-" for stdin; exactly one of prompt and in is set
  bool chat = false;                  // the prompt, or each line of text files, is a user's message
  std::optional<std::string> system;  // the system message before it; only with chat
  std::optional<std::string>
      chat_template;               // its name; absent: "default", or "tool_use" where there are tools
  bool follow = false;             // `in` is one pipe, served as its lines arrive
  std::optional<std::string> out;  // a path, or "-" for stdout
  Overwrite overwrite;
  StatedSampling sampling;        // without seed: a request's seed follows from the run's
  std::optional<uint64_t> seed;   // of the run
  std::string reasoning = "off";  // see reasoning_name; of requests that do not say
  Shard shard;
  double fail_on = 0;  // the share of all requests, in percent, that may fail before the exit code is 1
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

Parsed<GenerateOptions> parse_generate(Grammar& grammar, Words words, const Launch& launch);
Parsed<DoctorOptions> parse_doctor(Grammar& grammar, Words words, const Launch& launch);
// Collective, see RunOnRanks.
ExitCode run_generate(World& world, const GenerateOptions& options, const Supervision& supervision);
ExitCode run_doctor(World& world, const DoctorOptions& options, const Supervision& supervision);

// status: how runs stand; merge: the results of several shards as one file. One process, without MPI.
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

Parsed<StatusOptions> parse_status(Grammar& grammar, Words words, const Launch& launch);
Parsed<MergeOptions> parse_merge(Grammar& grammar, Words words, const Launch& launch);
ExitCode run_status(const StatusOptions& options);
ExitCode run_merge(const MergeOptions& options);

}  // namespace maniple
