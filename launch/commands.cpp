#include <launch/commands.hpp>
#include <launch/commands/commands.hpp>
#include <launch/options/usages.hpp>
#include <launch/options/version.hpp>
#include <launch/tools/tools.hpp>

#include <array>

namespace maniple {
namespace {

constexpr bool until_done = false, stops_by_clock = true;

constexpr std::array table{
    CommandRow{"generate", generate_usage, on_all_ranks<parse_generate, run_generate, stops_by_clock>},
    CommandRow{"doctor", doctor_usage, on_all_ranks<parse_doctor, run_doctor, until_done>},
    CommandRow{"bench", bench_usage, on_all_ranks<parse_bench, run_bench, stops_by_clock>},
    CommandRow{"tokenize", tokenize_usage, in_one_process<parse_tokenize, run_tokenize>},
    CommandRow{"convert", convert_usage, in_one_process<parse_convert, run_convert>},
    CommandRow{"status", status_usage, in_one_process<parse_status, run_status>},
    CommandRow{"merge", merge_usage, in_one_process<parse_merge, run_merge>},
    CommandRow{"report", report_usage, in_one_process<parse_report, run_report>},
    CommandRow{"scaling", scaling_usage, in_one_process<parse_scaling, run_scaling>},
};

std::string completion_of(const std::string& command) {
  return std::get<Notice>(read_command_line(std::vector<std::string>{command, "--completion"})).text;
}

}  // namespace

std::span<const CommandRow> commands() { return table; }

Task read_command_line(Words args, const Launch& launch) {
  const std::string first = args.empty() ? "" : args[0];
  std::vector<std::string> names;
  for (const CommandRow& command : table) {
    if (first == command.name) return command.read(command, args.subspan(1), launch);
    names.emplace_back(command.name);
  }
  if (first == "--help" || first == "-h" || first == "help") return Notice{std::string(overview)};
  if (first == "--version" || first == "-V") return Notice{version_text()};
  if (first == "--man") return Notice{overview_page(overview, names)};
  if (first == "--completion") return Notice{completion_script(names, completion_of)};
  const std::string list =
      fmt::format("maniple {} ...; maniple --help says more", fmt::join(names, " ..., maniple "));
  if (first.empty() || first.starts_with("-")) refuse("the first word must be a command", list);
  refuse(fmt::format("unknown command {}", first), did_you_mean(first, names, list));
}

}  // namespace maniple
