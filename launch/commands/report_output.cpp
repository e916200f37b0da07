#include <kernels/support/check.hpp>
#include <launch/commands/report_output.hpp>
#include <launch/output/output_file.hpp>

#include <cstdio>

namespace maniple {

namespace fs = std::filesystem;

void check_outputs(const ReportOptions& options) {
  if (options.json) check_overwrite(*options.json, options.overwrite);
  for (const std::optional<fs::path>& folder : {options.csv, options.svg})
    if (std::error_code none;
        folder && !options.overwrite.asked && fs::exists(*folder) && !fs::is_empty(*folder, none))
      throw Error(ExitCode::input, fmt::format("{} is not empty", folder->string()),
                  "its files would be replaced", "give another folder, or --overwrite");
}

void print(const Output& output, const ReportOptions& options) {
  if (options.json != "-") fmt::print("{}", output.text);
  flush_stdout();
  if (!options.json) return;
  OutputFile file(*options.json);
  file.clear();
  file.write(output.json);
  file.close();
}

}  // namespace maniple
