#include <launch/options/grammar.hpp>

#include <algorithm>
#include <array>
#include <sstream>

namespace maniple {
namespace {

// Copied examples must keep their ASCII characters, and no line of text may begin a request of roff.
std::string escaped(std::string_view text) {
  static const std::map<char, std::string_view> names = {{'\\', "\\(rs"}, {'-', "\\-"},   {'\'', "\\(aq"},
                                                         {'`', "\\(ga"},  {'"', "\\(dq"}, {'^', "\\(ha"},
                                                         {'~', "\\(ti"}};
  std::string roff = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    const auto name = names.find(c);
    roff += name == names.end() ? std::string_view(&c, 1) : name->second;
  }
  return roff;
}

// Examples, which are indented, stay as they are; the rest is filled.
std::string description(std::istringstream lines) {
  std::string roff, line;
  bool inside = false;
  const auto set_inside = [&](bool example) {
    if (std::exchange(inside, example) != example) roff += example ? ".PP\n.EX\n" : ".EE\n.PP\n";
  };
  while (std::getline(lines, line)) {
    if (line.empty()) continue;
    set_inside(line.starts_with("  "));
    roff += escaped(line) + '\n';
  }
  set_inside(false);
  return roff.starts_with(".PP\n") ? roff.substr(4) : roff;
}

struct Usage {
  std::string head, summary, rest;  // "maniple status DIR...", "how the runs ...", the lines below
};

Usage parts_of(std::string_view usage) {
  const size_t colon = usage.find(": "), end = usage.find('\n');
  return {std::string(usage.substr(0, colon)), std::string(usage.substr(colon + 2, end - colon - 2)),
          std::string(usage.substr(end + 1))};
}

std::string beginning(const std::string& name, const Usage& usage, std::string_view after_head) {
  std::string title = name;
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  const std::string text = description(std::istringstream(usage.rest));
  return fmt::format(
      ".TH {} 1 \"\" \"maniple {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n{}\n"
      ".SH DESCRIPTION\n{}",
      escaped(title), MANIPLE_VERSION, escaped(name), escaped(usage.summary), escaped(usage.head),
      escaped(after_head), text);
}

std::string short_name(const po::option_description& option) {
  const std::string name = option.canonical_display_name(po::command_line_style::allow_dash_for_short);
  return name.size() == 2 && name[0] == '-' ? name : "";
}

bool takes_value(const po::option_description& option) { return option.semantic()->max_tokens() > 0; }
bool must_have_value(const po::option_description& option) { return option.semantic()->min_tokens() > 0; }

std::string option_text(const po::option_description& option) {
  const std::string alias = short_name(option);
  return fmt::format(".TP\n.BR {}\\-\\-{}{}\n{}\n", alias.empty() ? "" : escaped(alias) + " \", \" ",
                     escaped(option.long_name()),
                     takes_value(option) ? " \" " + escaped(option.format_parameter()) + '"' : "",
                     escaped(option.description()));
}

std::string group_text(const po::options_description& group, std::string_view caption) {
  std::string roff = fmt::format(".SS \"{}\"\n", escaped(caption));
  for (const auto& option : group.options()) roff += option_text(*option);
  return roff;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> exit_codes = {{
    {"0", "complete"},
    {"1", "some requests failed; a --require of report was missed, or a required result of bench is INVALID"},
    {"64", "bad command line"},
    {"65", "bad input, model or output path, or the run directory of another run; nothing was computed"},
    {"69", "the launch or the machine does not fit the job, or another job is at work in the run directory"},
    {"70", "internal error"},
    {"75", "stopped on purpose: the same command again does the rest"},
    {"76", "fault: a rank, the network or the disk failed"},
    {"141", "the reader of standard output has left"},
    {"130, 143", "stopped without a run directory, by Ctrl-C; by SIGTERM, SIGUSR1 or the clock"},
}};

}  // namespace

std::string overview_page(std::string_view overview, std::span<const std::string> commands) {
  std::string page =
      beginning("maniple", parts_of(overview), "COMMAND [OPTION]...") + ".SH \"EXIT STATUS\"\n";
  for (const auto& [code, meaning] : exit_codes)
    page += fmt::format(".TP\n.B {}\n{}\n", code, escaped(meaning));
  page += ".SH \"SEE ALSO\"\n";
  for (const std::string& command : commands)
    page += fmt::format(".BR maniple\\-{} (1){}\n", command, command == commands.back() ? "" : ",");
  return page;
}

std::string Grammar::man() const {
  std::string page = beginning("maniple-" + command_, parts_of(usage_), "[OPTION]...") + ".SH OPTIONS\n";
  for (size_t group = 0; group < groups_.size(); ++group)
    page += group_text(groups_[group], captions_[group]);
  return page + group_text(general(), "General") + ".SH \"SEE ALSO\"\n.BR maniple (1)\n";
}

std::string Grammar::completion() const {
  std::vector<std::string> options, directories, files, texts;
  std::string cases;
  po::options_description all;
  for (const po::options_description& group : groups_) all.add(group);
  all.add(general());
  for (const auto& option : all.options()) {
    const std::string name = "--" + option->long_name(), shown = option->format_parameter();
    options.push_back(name);
    if (const auto known = choices_.find(option->long_name()); known != choices_.end())
      cases += fmt::format("        {}) values='{}' ;;\n", name, fmt::join(known->second, " "));
    else if (must_have_value(*option))
      (shown.starts_with("DIR") ? directories : shown.starts_with("FILE") ? files : texts).push_back(name);
  }
  for (const auto& [kind, of_kind] :
       {std::pair("directory", directories), std::pair("file", files), std::pair("text", texts)})
    if (!of_kind.empty()) cases += fmt::format("        {}) kind={} ;;\n", fmt::join(of_kind, "|"), kind);
  const std::string words = !words_ ? ""
                            : completed_words_.empty()
                                ? "      words=yes\n"
                                : fmt::format("      words='{}'\n", fmt::join(completed_words_, " "));
  return fmt::format("    {})\n      options='{}'\n{}      case $previous in\n{}      esac ;;\n", command_,
                     fmt::join(options, " "), words, cases);
}

std::string completion_script(std::span<const std::string> commands,
                              const std::function<std::string(const std::string& command)>& part_of) {
  std::string cases;
  for (const std::string& command : commands) cases += part_of(command);
  return fmt::format(R"(# bash completion of maniple {}
_maniple() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local options='{} --help --version' values='' kind='' words=''
  [[ $current == '=' ]] && current=''  # --name=value is three words
  [[ $previous == '=' ]] && previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  ((COMP_CWORD == 1)) || case ${{COMP_WORDS[1]}} in
{}  esac
  if [[ -z $kind$values && -n $words && $current != -* ]]; then
    if [[ $words == yes ]]; then kind=file; else values=$words; fi
  fi
  case $kind in
    text) COMPREPLY=() ;;
    directory | file)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -A "$kind" -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "${{values:-$options}}" -- "$current") ;;
  esac
}}
complete -F _maniple maniple
)",
                     MANIPLE_VERSION, fmt::join(commands, " "), cases);
}

}  // namespace maniple
