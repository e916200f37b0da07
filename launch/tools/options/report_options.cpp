#include <launch/options/grammar.hpp>
#include <launch/tools/options/report_options.hpp>

#include <algorithm>
#include <regex>

namespace maniple {
namespace {

void check_together(const ReportOptions& options) {
  if (options.runs.empty()) refuse("report takes runs", "maniple report RUN..., or --compare A B");
  if (options.force && !options.compare) refuse("--force needs --compare", "--compare A B --force");
  for (const Requirement& requirement : options.requirements)
    if (requirement.relative && !options.compare)
      refuse(fmt::format("--require {} is relative, and there is no other run", requirement.text),
             "--compare A B, or a number without x");
}

// Fails (usage) on anything but METRIC>=NUMBER and METRIC<=NUMBER, with an x behind the number where it is relative.
Requirement parse_requirement(const std::string& text) {
  static const std::regex form(R"(\s*([\w.:-]+)\s*([<>]=)\s*([0-9.eE+-]+)\s*(x?)\s*)");
  std::smatch parts;
  if (!std::regex_match(text, parts, form))
    refuse(fmt::format("--require ({}) must be a metric, >= or <=, and a number", text),
           "'out_tok_per_s>=250', or relative to A: --compare A B --require 'out_tok_per_s>=0.98x'");
  constexpr double any = 1e300;
  return {text, parts.str(1), parts.str(2) == ">=", parse_number<double>("require", parts.str(3), -any, any),
          parts.length(4) > 0};
}

}  // namespace

Parsed<ReportOptions> parse_report(Grammar& grammar, Words args, const Launch& launch) {
  ReportOptions options;
  std::vector<std::string> compared, requirements;
  grammar.take_words(options.runs);
  grammar.group("Report");
  grammar.add("ranks", on(options.ranks), "phases and memory by rank, who set the KV blocks, who is slow");
  grammar.add("steps", on(options.steps), "time and shares of the steps, by the number of sequences");
  grammar.add("requests", on(options.requests), "quantiles of the requests, and the slowest ten");
  grammar.add("fom", on(options.fom), "a last line for test suites: fom: out_tok_per_s = 250.3 tokens/s");
  grammar.add("compare", paths("FILE FILE", compared).repeated(),
              "A and B: ratios of medians, with intervals and verdicts");
  grammar.add("force", on(options.force), "compare runs of different models, inputs or types");
  grammar.add("require", texts("M>=X", requirements),
              "exit with 1 unless this metric is so; 0.98x: of A's; <= too; may be given several times");
  grammar.add("json", path("FILE", options.json), "an object a run; - for stdout, instead of the text");
  grammar.add("csv", path("DIR", options.csv), "a CSV file a table");
  grammar.add("svg", path("DIR", options.svg), "CSV files, scripts of gnuplot, and their plots");
  grammar.add("pack", on(options.pack), "make record.h5 of the log of a job that did not end");
  grammar.add("overwrite", on(options.overwrite.asked), "FILE and DIR may hold something");
  if (const auto help = grammar.parse(args)) return Notice{*help};
  if (!compared.empty() && (compared.size() != 2 || !options.runs.empty()))
    refuse("--compare takes two runs", "maniple report --compare A B");
  options.compare = !compared.empty();
  if (options.compare) options.runs = compared;
  std::ranges::transform(requirements, std::back_inserter(options.requirements), parse_requirement);
  check_together(options);
  options.overwrite.requeued = launch.requeued;
  return options;
}

}  // namespace maniple
