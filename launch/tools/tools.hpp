// The tools beside a job: their options, which are constant once they are read, and what they do. (Of report and scaling: options/.)
#pragma once

#include <kernels/support/check.hpp>
#include <launch/options/overwrite.hpp>
#include <launch/tools/options/bench_options.hpp>

#include <filesystem>
#include <optional>
#include <string>

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

Parsed<TokenizeOptions> parse_tokenize(Grammar& grammar, Words words, const Launch& launch);
Parsed<ConvertOptions> parse_convert(Grammar& grammar, Words words, const Launch& launch);
ExitCode run_tokenize(const TokenizeOptions& options);
ExitCode run_convert(const ConvertOptions& options);

}  // namespace maniple
