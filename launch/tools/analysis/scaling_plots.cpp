#include <launch/run_directory/durable_file.hpp>
#include <launch/tools/analysis/gnuplot.hpp>
#include <launch/tools/analysis/scaling_text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace maniple {
namespace {

constexpr const char* common = R"(set xlabel 'ranks'
set logscale x 2
set xtics ({ticks})
set xrange [{first} / 1.25:{last} * 1.25]
set mxtics 1
set key below left reverse Left
set border 3
set tics nomirror out
set style line 1 lc rgb '#0060ad' lw 1.5 pt 7 ps 1
set style line 2 lc rgb '#888888' lw 2 dt 2
set style line 3 lc rgb '#dd7711' lw 2
)";

// Two lines.
std::string caption_of(const Study& study) {
  std::string what = title_of(study);
  what[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(what[0])));
  const std::string work = fmt::format("{}, {}", study.model.filename().string(), work_of(study));
  return gnuplot_text(what) + " . \"\\n\" . " + gnuplot_text(work);
}

bool all_have_intervals(const ScalingResult& result) {
  return std::ranges::none_of(result.rows, [](const ScalingRow& row) {
    return !row.tokens_per_s.empty() && std::isnan(row.rate.low);
  });
}

std::string bars_text(const ScalingResult& result) {
  size_t fewest = SIZE_MAX, most = 0;
  for (const ScalingRow& row : result.rows)
    if (const size_t n = row.tokens_per_s.size(); n > 0)
      fewest = std::min(fewest, n), most = std::max(most, n);
  if (most == 1) return "one launch";
  const std::string number = fewest < most ? fmt::format("{} to {}", fewest, most) : fmt::format("{}", most);
  return fmt::format("median of {} launches, {}", number,
                     all_have_intervals(result) ? "95 % interval" : "smallest to largest");
}

// A tick at each point; no label where it would touch the one before.
std::string ticks_of(const std::vector<ScalingRow>& rows) {
  constexpr double room = 14;  // labels on the axis
  const int first = rows.front().point.ranks(), last = rows.back().point.ranks();
  const double octaves = std::log2(static_cast<double>(last) / first) + 2 * std::log2(1.25);
  std::string ticks;
  double labelled = -HUGE_VAL;
  for (const ScalingRow& row : rows) {
    const int ranks = row.point.ranks();
    const bool has_room = std::log2(ranks) - labelled > octaves / room;
    if (has_room) labelled = std::log2(ranks);
    ticks +=
        fmt::format("{}'{}' {}", ticks.empty() ? "" : ", ", has_room ? fmt::format("{}", ranks) : "", ranks);
  }
  return ticks;
}

std::string axes(const ScalingResult& result) {
  return fmt::format(fmt::runtime(common), fmt::arg("ticks", ticks_of(result.rows)),
                     fmt::arg("first", result.rows.front().point.ranks()),
                     fmt::arg("last", result.rows.back().point.ranks()));
}

// The points, with bars: of a number that is proportional to the rate.
std::string measured(const ScalingResult& result, const char* number) {
  const auto [low, high] =
      all_have_intervals(result) ? std::pair("low", "high") : std::pair("smallest", "largest");
  const std::string scaled = fmt::format("column('{}') / column('tok_per_s')", number);
  return fmt::format(
      "'scaling.csv' using 'ranks':'{0}':({1} * column('{2}')):({1} * column('{3}')) \\\n"
      "       with yerrorbars ls 1 title {4}",
      number, scaled, low, high, gnuplot_text(bars_text(result)));
}

std::string joined(const char* number) {
  return fmt::format(", \\\n     '' using 'ranks':'{}' with lines ls 1 notitle", number);
}

std::string speed_up_script(const ScalingResult& result) {
  const int first = result.rows.front().point.ranks();
  const double f = result.serial_fraction;
  std::string script = fmt::format(
      "set ylabel '{}speed-up over {} {}'\nset logscale y 2\nset mytics 1\nset yrange [*:*] "
      "noextend\nideal(ranks) = ranks / {}.0\n",
      result.study.mode == ScalingMode::weak ? "scaled " : "", first, first == 1 ? "rank" : "ranks", first);
  script += "plot ideal(x) with lines ls 2 title 'ideal', \\\n     ";
  if (f > 0)
    script += fmt::format("1 / ({0} + (1 - {0}) / ideal(x)) with lines ls 3 title {1}, \\\n     ", f,
                          gnuplot_text(fmt::format("Amdahl's law, serial fraction {:.3f}", f)));
  return script + measured(result, "speed_up") + (f > 0 ? "" : joined("speed_up"));
}

std::string efficiency_script(const ScalingResult& result) {
  return "set ylabel 'efficiency'\nset yrange [0:1.05<*] noextend\nplot 1 with "
         "lines ls 2 title "
         "'ideal', \\\n     " +
         measured(result, "efficiency") + joined("efficiency");
}

}  // namespace

std::vector<std::string> write_scaling_scripts(const ScalingResult& result,
                                               const std::filesystem::path& folder) {
  const auto write = [&](const std::string& name, const std::string& commands) {
    replace_file(folder / (name + ".gp"),
                 script_head(name, caption_of(result.study)) + axes(result) + commands + '\n');
  };
  write("speed_up", speed_up_script(result));
  write("efficiency", efficiency_script(result));
  return {"speed_up", "efficiency"};
}

}  // namespace maniple
