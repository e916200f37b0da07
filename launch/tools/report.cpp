#include <launch/options/grammar.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/report.hpp>
#include <launch/tools/analysis/compare.hpp>
#include <launch/tools/analysis/csv.hpp>
#include <launch/tools/analysis/gnuplot.hpp>
#include <launch/tools/analysis/plots.hpp>
#include <launch/tools/analysis/row_tables.hpp>
#include <launch/tools/analysis/scaling_text.hpp>
#include <launch/tools/analysis/summary_text.hpp>
#include <launch/tools/tools.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace maniple {

namespace fs = std::filesystem;

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

struct Output {
  std::string text, json;
};

// Throws Error (input) where a file or a folder holds something.
void check_outputs(const ReportOptions& options) {
  if (options.json) check_overwrite(*options.json, options.overwrite);
  for (const std::optional<fs::path>& folder : {options.csv, options.svg})
    if (std::error_code none;
        folder && !options.overwrite.asked && fs::exists(*folder) && !fs::is_empty(*folder, none))
      throw Error(ExitCode::input, fmt::format("{} is not empty", folder->string()),
                  "its files would be replaced", "give another folder, or --overwrite");
}

// The text to stdout, unless the JSON goes there.
void print(const Output& output, const ReportOptions& options) {
  if (options.json != "-") fmt::print("{}", output.text);
  flush_stdout();
  if (!options.json) return;
  OutputFile file(*options.json);
  file.clear();
  file.write(output.json);
  file.close();
}

void pack(const RecordedJob& job, const Overwrite& overwrite) {
  if (!is_log(job)) return;
  if (job.running)
    throw Error(ExitCode::preflight, fmt::format("{} is running", job.name),
                "its own record follows when it ends", "report without --pack reads the log as it is");
  fs::path packed = fs::path(job.file).replace_extension();  // of record.log or a.h5.log
  if (packed.extension() != ".h5") packed += ".h5";
  check_overwrite(packed, overwrite);
  write_record_file(job.record, packed);
  say(fmt::format("maniple: {} is packed into {}\n", job.file.string(), packed.string()));
}

void refuse_incomparable(const Side& a, const Side& b) {
  const std::vector<std::string> differences = differences_of(a.run, b.run);
  if (!differences.empty())
    throw Error(ExitCode::input, fmt::format("not comparable: {}", fmt::join(differences, "; ")),
                "a ratio would say nothing about either of them", "--force compares");
}

Output comparison_of(const Side& a, const Side& b) {
  const std::vector<Comparison> rows = compare(a.summary, b.summary);
  std::string text;
  for (const auto& [name, side] : {std::pair("A", &a), {"B", &b}}) {
    const std::string verdict = verdict_of(side->run.jobs.back().record);
    text += fmt::format("# {}: {}{}{}\n", name, side->run.name, verdict.empty() ? "" : ", ", verdict);
  }
  for (const std::string& difference : differences_of(a.run, b.run))
    text += fmt::format("# {}\n", difference);
  text += rows.empty() ? "they have no number in common\n" : comparison_text(rows);
  return {text, comparison_json(a, b, rows) + '\n'};
}

Output summaries_of(const std::vector<Side>& sides) {
  Output output;
  for (const Side& side : sides) {
    if (!output.text.empty()) output.text += '\n';
    output.text += summary_text(side.run, side.summary);
    output.json += summary_json(side.run, side.summary) + '\n';
  }
  return output;
}

std::string rank_tables_of(const std::vector<Side>& sides) {
  std::string text;
  for (const Side& side : sides)
    for (const RecordedJob& job : side.run.jobs)
      text += fmt::format("\n# {}{}\n", job.name == side.run.name ? "" : side.run.name + ", ", job.name) +
              rank_table_text(job);
  return text;
}

struct Export {
  const Record& record;
  fs::path folder;
  std::string title;
};

// A single record goes into the folder itself, several into folders of their own: 1-job-2 is job 2 of the first run.
std::vector<Export> exports_of(const std::vector<Side>& sides, const fs::path& folder) {
  std::vector<Export> exports;
  for (size_t i = 0; i < sides.size(); ++i)
    for (const RecordedJob& job : sides[i].run.jobs) {
      const bool alone = sides.size() == 1 && sides[i].run.jobs.size() == 1,
                 of_many = job.name.starts_with("job ");
      const std::string number = of_many ? "-job-" + job.name.substr(4) : "";
      exports.push_back({job.record, alone ? folder : folder / fmt::format("{}{}", i + 1, number),
                         sides[i].run.name + (of_many ? ", " + job.name : "")});
    }
  return exports;
}

std::string further_tables_of(const Side& side, const ReportOptions& options) {
  std::string text;
  if (options.steps) text += fmt::format("\n# {}\n{}", side.run.name, step_table_text(side.run));
  if (options.requests)
    text += fmt::format("\n# {}\n{}", side.run.name, request_table_text(side.run, side.summary));
  if (options.fom) text += fom_text(side.summary);
  return text;
}

void export_csv(const std::vector<Side>& sides, const fs::path& folder) {
  for (const Export& part : exports_of(sides, folder)) {
    make_folder(part.folder);
    write_csv(part.record, part.folder);
  }
}

void export_plots(const std::vector<Side>& sides, const fs::path& folder) {
  export_csv(sides, folder);
  std::vector<std::pair<fs::path, std::string>> scripts;
  for (const Export& part : exports_of(sides, folder))
    for (const std::string& name : write_plot_scripts(part.record, part.folder, part.title))
      scripts.emplace_back(part.folder, name);
  draw(scripts, folder);
}

void check_requirements(const std::vector<Side>& sides, const ReportOptions& options) {
  for (const Requirement& requirement : options.requirements) {
    if (options.compare)
      check_requirement(requirement, &sides[0].summary, sides[1].summary);
    else
      for (const Side& side : sides) check_requirement(requirement, nullptr, side.summary);
  }
}

// A study alone.
void refuse_others(const ReportOptions& options) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ExitCode::usage, what, "a study has a table of its own",
                "maniple report STUDY; maniple report STUDY/points/.../record.h5 for a launch");
  };
  if (options.compare || options.runs.size() > 1) refuse("a study is reported alone");
  if (options.ranks || options.pack || options.steps || options.requests)
    refuse("--ranks, --steps, --requests and --pack do not go with a study");
}

// Of each point that was measured.
void check_requirements(const ScalingResult& result, const std::vector<Requirement>& requirements) {
  for (const ScalingRow& row : result.rows) {
    if (row.tokens_per_s.empty()) continue;
    Summary summary;
    for (const auto& [name, value] : {std::pair("efficiency", row.efficiency),
                                      {"speed_up", row.speed_up},
                                      {"out_tok_per_s", row.rate.median}})
      summary.metrics.push_back({name, "", {value}});
    for (const Requirement& requirement : requirements) check_requirement(requirement, nullptr, summary);
  }
}

std::string fom_of(const ScalingResult& result) {
  const ScalingRow& last = result.rows.back();
  return std::isnan(last.efficiency) ? "" : fmt::format("fom: efficiency = {:.3f}\n", last.efficiency);
}

// Table, JSON, CSV, plots, requirements of every point.
void report_study(const ReportOptions& options) {
  refuse_others(options);
  const fs::path folder = options.runs.front();
  const Study study = read_study(folder);
  const ScalingResult result = scaling_of(study, launches_of(study, folder));
  const std::string fom = options.fom ? fom_of(result) : "";
  print({scaling_text(result) + fom, scaling_json(result, folder.string()) + '\n'}, options);
  for (const std::optional<fs::path>& to : {options.csv, options.svg})
    if (to) make_folder(*to), write_scaling_csv(result, *to);
  check_requirements(result, options.requirements);
  if (!options.svg) return;
  std::vector<std::pair<fs::path, std::string>> scripts;
  for (const std::string& name : write_scaling_scripts(result, *options.svg))
    scripts.emplace_back(*options.svg, name);
  draw(scripts, *options.svg);
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

ExitCode run_report(const ReportOptions& options) {
  check_outputs(options);
  if (std::ranges::any_of(options.runs, is_study)) return report_study(options), ExitCode::complete;
  std::vector<Side> sides;
  for (const std::string& path : options.runs) {
    RecordedRun run = read_run(path);
    Summary summary = summarize(run);
    sides.push_back({std::move(run), std::move(summary)});
  }
  if (options.pack)
    for (const Side& side : sides)
      for (const RecordedJob& job : side.run.jobs) pack(job, options.overwrite);
  if (options.compare && !options.force) refuse_incomparable(sides[0], sides[1]);
  Output output = options.compare ? comparison_of(sides[0], sides[1]) : summaries_of(sides);
  if (options.ranks) output.text += rank_tables_of(sides);
  for (const Side& side : sides) output.text += further_tables_of(side, options);
  print(output, options);
  if (options.csv) export_csv(sides, *options.csv);
  check_requirements(sides, options);
  if (options.svg) export_plots(sides, *options.svg);
  return ExitCode::complete;
}

}  // namespace maniple
