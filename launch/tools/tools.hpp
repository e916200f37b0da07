// The tools beside a job: their options, which are constant once they are read, and what they do.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/tools/analysis/requirement.hpp>
#include <launch/tools/options/bench_options.hpp>
#include <launch/tools/scaling/study.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

struct Supervision;

// Collective, see RunOnRanks.
ExitCode run_bench(World& world, const BenchOptions& options, const Supervision& supervision);

// One process, no weights, no MPI.
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

struct ReportOptions {
  std::vector<std::string>
      runs;  // run directories, folders of jobs, records, or a study; with compare: A and B
  bool compare = false;
  bool force = false;                                   // compare what is not comparable
  bool ranks = false, steps = false, requests = false;  // further tables
  bool fom = false;
  bool pack = false;
  std::optional<std::string> json;  // a path, or "-" for stdout
  std::optional<std::filesystem::path> csv, svg;
  std::vector<Requirement> requirements;
  Overwrite overwrite;
};

struct ScalingOptions {
  bool plan = false;  // else next
  std::filesystem::path study;
  StudySettings settings;  // of plan
};

Parsed<TokenizeOptions> parse_tokenize(Grammar& grammar, Words words, const Launch& launch);
Parsed<ConvertOptions> parse_convert(Grammar& grammar, Words words, const Launch& launch);
Parsed<ReportOptions> parse_report(Grammar& grammar, Words words, const Launch& launch);
Parsed<ScalingOptions> parse_scaling(Grammar& grammar, Words words, const Launch& launch);
ExitCode run_tokenize(const TokenizeOptions& options);
ExitCode run_convert(const ConvertOptions& options);
ExitCode run_report(const ReportOptions& options);
ExitCode run_scaling(const ScalingOptions& options);

}  // namespace maniple
