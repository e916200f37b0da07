#include <kernels/support/counted.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/analysis/scaling_text.hpp>
#include <launch/tools/analysis/summary_text.hpp>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace maniple {

using json = nlohmann::ordered_json;

namespace {

std::string digits(double number, int digits) {
  return std::isnan(number) ? "-" : fmt::format("{:.{}f}", number, digits);
}

std::string verdict_text(const ScalingRow& row, int rounds) {
  const size_t launches = row.tokens_per_s.size();
  std::string counted_rounds = fmt::format("{} of {} rounds", launches, rounds);
  if (launches == 0) return counted_rounds;
  const std::string reason = row.reason.empty() ? "" : fmt::format(" ({})", row.reason);
  return row.verdict + reason + (launches < static_cast<size_t>(rounds) ? ", " + counted_rounds : "");
}

std::string row_text(const ScalingRow& row, int rounds) {
  return fmt::format("{:>7} {:>5} {:>3} {:>3} {:>3}  {:<26} {:>8} {:>6} {:>11}  {}\n", row.point.ranks(),
                     row.nodes > 0 ? fmt::format("{}", row.nodes) : "-", row.point.tensor, row.point.pipeline,
                     row.point.data, interval_text(row.rate), digits(row.speed_up, 2),
                     digits(row.efficiency, 3), digits(row.karp_flatt, 3), verdict_text(row, rounds));
}

std::string fit_text(const ScalingResult& result) {
  const double f = result.serial_fraction;
  const std::string only =
      fmt::format("over {} only: two axes are never on one line\n", result.study.axis().name);
  if (std::isnan(f)) return {};
  const std::string fit = fmt::format("# Amdahl fit: serial fraction {:.3f}", f);
  if (f <= 0) return fmt::format("{}, better than ideal; {}", fit, only);
  if (f >= 1) return fmt::format("{}: more ranks do not help; {}", fit, only);
  return fmt::format("{}, at most {:.1f}x; {}", fit, 1 / f, only);
}

std::string missing_text(const ScalingResult& result) {
  std::string text;
  for (const StudyLaunch& launch : result.missing)
    if (launch.skipped())
      text += fmt::format("# failed {} times (exit codes {}), and skipped: {}\n", launch.attempts.size(),
                          fmt::join(launch.attempts, ", "), launch.folder.string());
  for (const StudyPoint& point : result.study.points) {
    std::vector<int> rounds;
    for (const StudyLaunch& launch : result.missing)
      if (launch.point == point && launch.waits()) rounds.push_back(launch.round);
    if (!rounds.empty())
      text += fmt::format("# missing: {}, {} {}\n", sizes_text(point),
                          rounds.size() == 1 ? "round" : "rounds", fmt::join(rounds, ", "));
  }
  return text;
}

std::string cell(double number) { return std::isnan(number) ? "" : fmt::format("{}", number); }

}  // namespace

std::string scaling_text(const ScalingResult& result) {
  const Study& study = result.study;
  std::string text = fmt::format("# {}, reference {}, {} {} a point, median [95 % CI]\n", title_of(study),
                                 counted(static_cast<uint64_t>(study.points.front().ranks()), "rank"),
                                 study.rounds, study.rounds == 1 ? "launch" : "launches");
  text += fmt::format("# {} ({}), {}\n", study.model.string(), study.model_hash, work_of(study));
  text += fmt::format("# {:>5} {:>5} {:>3} {:>3} {:>3}  {:<26} {:>8} {:>6} {:>11}  {}\n", "ranks", "nodes",
                      "tp", "pp", "dp", "tok/s [CI]", "speed-up", "eff", "Karp-Flatt", "verdict");
  for (const ScalingRow& row : result.rows) text += row_text(row, study.rounds);
  text += fit_text(result);
  for (const std::string& difference : result.differences) text += fmt::format("# {}\n", difference);
  return text + missing_text(result);
}

std::string scaling_json(const ScalingResult& result, const std::string& name) {
  const Study& study = result.study;
  json points = json::array(), missing = json::array();
  for (const ScalingRow& row : result.rows)
    points.push_back({{"ranks", row.point.ranks()},
                      {"nodes", row.nodes},
                      {"tp", row.point.tensor},
                      {"pp", row.point.pipeline},
                      {"dp", row.point.data},
                      {"launches", row.tokens_per_s},
                      {"output_throughput", row.rate.median},
                      {"low", row.rate.low},
                      {"high", row.rate.high},
                      {"speed_up", row.speed_up},
                      {"efficiency", row.efficiency},
                      {"karp_flatt", row.karp_flatt},
                      {"verdict", row.verdict}});
  for (const StudyLaunch& launch : result.missing)
    missing.push_back({{"tp", launch.point.tensor},
                       {"pp", launch.point.pipeline},
                       {"dp", launch.point.data},
                       {"round", launch.round},
                       {"attempts", launch.attempts},
                       {"skipped", launch.skipped()}});
  const json object = {{"study", name},
                       {"mode", name_of(study.mode)},
                       {"axis", study.axis().name},
                       {"model", study.model.string()},
                       {"model_hash", study.model_hash},
                       {"num_prompts", study.num_prompts},
                       {"workload", study.workload},
                       {"rounds", study.rounds},
                       {"serial_fraction", result.serial_fraction},
                       {"points", points},
                       {"missing", missing}};
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

void write_scaling_csv(const ScalingResult& result, const std::filesystem::path& folder) {
  std::string text =
      "ranks,nodes,tp,pp,dp,launches,tok_per_s,low,high,speed_up,efficiency,karp_flatt,verdict,smallest,"
      "largest\n";
  for (const ScalingRow& row : result.rows)
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", row.point.ranks(),
                        row.nodes > 0 ? fmt::format("{}", row.nodes) : "", row.point.tensor,
                        row.point.pipeline, row.point.data, row.tokens_per_s.size(), cell(row.rate.median),
                        cell(row.rate.low), cell(row.rate.high), cell(row.speed_up), cell(row.efficiency),
                        cell(row.karp_flatt), row.verdict, cell(row.smallest), cell(row.largest));
  replace_file(folder / "scaling.csv", text);
}

}  // namespace maniple
