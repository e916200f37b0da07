#include <kernels/support/check.hpp>
#include <launch/analysis/gnuplot.hpp>
#include <launch/analysis/requirement.hpp>
#include <launch/analysis/scaling_text.hpp>
#include <launch/commands/report_output.hpp>
#include <launch/output/output_file.hpp>

#include <cmath>

namespace maniple {

namespace fs = std::filesystem;

namespace {

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

}  // namespace

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

}  // namespace maniple
