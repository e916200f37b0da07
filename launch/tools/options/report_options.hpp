// `maniple report` and its options. One process, no weights, no MPI.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/options/overwrite.hpp>
#include <launch/options/parsed.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

// A number that must hold of a run: "out_tok_per_s>=250", or "out_tok_per_s>=0.98x" of the run that it is compared with.
struct Requirement {
  std::string text, metric;
  bool at_least = true;  // else at most
  double bound = 0;
  bool relative = false;
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

Parsed<ReportOptions> parse_report(Grammar& grammar, Words args, const Launch& launch);
ExitCode run_report(const ReportOptions& options);

}  // namespace maniple
