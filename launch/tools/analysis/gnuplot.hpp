// gnuplot: what its scripts share, and running it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace maniple {

// In single quotes.
std::string gnuplot_text(std::string text);
// The first lines of a script that reads CSV files and writes NAME.svg beside itself. title: a text of gnuplot.
std::string script_head(const std::string& name, const std::string& title);

// folder/NAME.gp becomes folder/NAME.svg. Throws Error (preflight) where there is no gnuplot: CSV and scripts are in `root`
// all the same.
void draw(const std::vector<std::pair<std::filesystem::path, std::string>>& scripts,
          const std::filesystem::path& root);

}  // namespace maniple
