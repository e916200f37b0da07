#include <kernels/support/check.hpp>
#include <launch/process/command_output.hpp>
#include <launch/tools/analysis/gnuplot.hpp>

#include <boost/algorithm/string/replace.hpp>

#include <algorithm>

namespace maniple {

namespace fs = std::filesystem;

namespace {

void draw_one(const fs::path& folder, const std::string& name) {
  const fs::path picture = folder / (name + ".svg");
  fs::remove(picture);
  const std::string change = fmt::format("cd {}", gnuplot_text(folder.string()));
  output_of({"gnuplot", "-e", change, name + ".gp"}, std::chrono::minutes(5));
  if (!fs::exists(picture) || fs::is_empty(picture))
    throw Error(ExitCode::preflight, fmt::format("gnuplot made no {}", picture.string()), "",
                fmt::format("cd {} && gnuplot {}.gp shows why", folder.string(), name));
}

}  // namespace

// Single quotes are doubled; a line's end would end the command.
std::string gnuplot_text(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return fmt::format("'{}'", boost::algorithm::replace_all_copy(text, "'", "''"));
}

std::string script_head(const std::string& name, const std::string& title) {
  return fmt::format(
      "# gnuplot {0}.gp, in this folder\nset terminal svg size 800,500 dynamic background 'white' font "
      "'sans-serif,14'\nset output '{0}.svg'\nset datafile separator ','\nset datafile missing NaN\n"
      "set title {1} noenhanced\nset grid\nset rmargin 5\n",
      name, title);
}

void draw(const std::vector<std::pair<fs::path, std::string>>& scripts, const fs::path& root) {
  if (output_of({"gnuplot", "--version"}, std::chrono::seconds(10)).value_or("").empty())
    throw Error(
        ExitCode::preflight, fmt::format("CSV and scripts are in {}", root.string()),
        "there is no gnuplot here to draw them",
        fmt::format("install gnuplot (Debian: gnuplot-nox), then cd {} && gnuplot *.gp", root.string()));
  for (const auto& [folder, name] : scripts) draw_one(folder, name);
}

}  // namespace maniple
