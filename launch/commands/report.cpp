#include <launch/analysis/compare.hpp>
#include <launch/analysis/csv.hpp>
#include <launch/analysis/plots.hpp>
#include <launch/analysis/rank_table.hpp>
#include <launch/analysis/requirement.hpp>
#include <launch/analysis/summary_text.hpp>
#include <launch/commands/commands.hpp>
#include <launch/output/output_file.hpp>
#include <launch/output/report.hpp>
#include <launch/process/command_output.hpp>

#include <fmt/ranges.h>

#include <cstdio>

namespace maniple {

namespace fs = std::filesystem;

namespace {

void check_outputs(const ReportOptions& options) {
  if (options.json) check_overwrite(*options.json, options.overwrite);
  for (const std::optional<fs::path>& folder : {options.csv, options.svg})
    if (std::error_code none;
        folder && !options.overwrite.asked && fs::exists(*folder) && !fs::is_empty(*folder, none))
      throw Error(ExitCode::input, fmt::format("{} is not empty", folder->string()),
                  "its files would be replaced", "give another folder, or --overwrite");
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

std::string forced_text(const Side& a, const Side& b) {
  std::string text;
  for (const std::string& difference : differences_of(a.run, b.run))
    text += fmt::format("# {}\n", difference);
  return text;
}

struct Output {
  std::string text, json;
};

Output comparison_of(const Side& a, const Side& b) {
  const std::vector<Comparison> rows = compare(a.summary, b.summary);
  std::string text = fmt::format("# A: {}\n# B: {}\n", a.run.name, b.run.name) + forced_text(a, b);
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

void print(const Output& output, const std::optional<std::string>& json) {
  if (json != "-") fmt::print("{}", output.text);
  flush_stdout();
  if (!json) return;
  OutputFile file(*json);
  file.clear();
  file.write(output.json);
  file.close();
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

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ExitCode::input, "cannot make the folder {}: {}", folder.string(), error.message());
}

void export_csv(const std::vector<Side>& sides, const fs::path& folder) {
  for (const Export& part : exports_of(sides, folder)) {
    make_folder(part.folder);
    write_csv(part.record, part.folder);
  }
}

bool has_gnuplot() {
  return !output_of({"gnuplot", "--version"}, std::chrono::seconds(10)).value_or("").empty();
}

// In a text of gnuplot a single quote is doubled.
std::string change_to(const fs::path& folder) {
  std::string text;
  for (const char c : folder.string()) text += c == '\'' ? std::string("''") : std::string(1, c);
  return "cd '" + text + "'";
}

void plot(const fs::path& folder, const std::string& name) {
  const fs::path picture = folder / (name + ".svg");
  fs::remove(picture);
  output_of({"gnuplot", "-e", change_to(folder), name + ".gp"}, std::chrono::minutes(5));
  if (!fs::exists(picture) || fs::is_empty(picture))
    throw Error(ExitCode::preflight, fmt::format("gnuplot made no {}", picture.string()), "",
                fmt::format("cd {} && gnuplot {}.gp shows why", folder.string(), name));
}

void export_plots(const std::vector<Side>& sides, const fs::path& folder) {
  export_csv(sides, folder);
  const bool can_plot = has_gnuplot();
  for (const Export& part : exports_of(sides, folder))
    for (const std::string& name : write_plot_scripts(part.record, part.folder, part.title))
      if (can_plot) plot(part.folder, name);
  if (!can_plot)
    throw Error(
        ExitCode::preflight, fmt::format("CSV and scripts are in {}", folder.string()),
        "there is no gnuplot here to draw them",
        fmt::format("install gnuplot (Debian: gnuplot-nox), then cd {} && gnuplot *.gp", folder.string()));
}

void check_requirements(const std::vector<Side>& sides, const ReportOptions& options) {
  for (const Requirement& requirement : options.requirements) {
    if (options.compare)
      check_requirement(requirement, &sides[0].summary, sides[1].summary);
    else
      for (const Side& side : sides) check_requirement(requirement, nullptr, side.summary);
  }
}

}  // namespace

ExitCode run_report(const ReportOptions& options) {
  check_outputs(options);
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
  print(output, options.json);
  if (options.csv) export_csv(sides, *options.csv);
  check_requirements(sides, options);
  if (options.svg) export_plots(sides, *options.svg);
  return ExitCode::complete;
}

}  // namespace maniple
