#include <kernels/support/check.hpp>
#include <kernels/support/nearest_name.hpp>
#include <launch/options/grammar.hpp>
#include <launch/options/version.hpp>

#include <boost/algorithm/string.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace maniple {
namespace {

constexpr unsigned line_length = 110;
constexpr unsigned description_length = 72;

std::vector<std::string> names(const po::options_description& options, std::string_view prefix) {
  std::vector<std::string> names;
  for (const auto& option : options.options())
    names.push_back(fmt::format("{}{}", prefix, option->long_name()));
  return names;
}

std::string trimmed(const std::string& text) {
  return boost::algorithm::trim_copy_if(text, boost::algorithm::is_any_of(" \t\r"));
}

// Removes quotes as shells do: '...' or "..." is the text between.
std::string unquoted(const std::string& text) {
  const bool quoted = text.size() >= 2 && text.front() == text.back() && (text[0] == '"' || text[0] == '\'');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// The option that a stray path may be meant for; empty: none.
std::string option_for_path(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.extension() == ".h5" || std::filesystem::exists(path / "config.json", ignored)) return "model";
  const bool is_input = path.extension() == ".jsonl" || std::filesystem::is_regular_file(path, ignored);
  return is_input ? "in" : "";
}

// Values from the command line and from the file that --config names. The command line wins.
class Reader {
 public:
  Reader(const std::string& command, const std::vector<po::options_description>& groups, bool takes_words)
      : help_remedy_(fmt::format("maniple {} --help lists the options", command)), takes_words_(takes_words) {
    for (const po::options_description& group : groups) in_file_.add(group);
    all_.add(in_file_).add(Grammar::general());
    if (takes_words) all_.add_options()("words", po::value<std::vector<std::string>>());
  }

  po::variables_map read(std::span<const std::string> args) const {
    try {
      po::variables_map values;
      po::store(from_arguments(args), values);
      if (values.count("config") != 0) po::store(from_file(values["config"].as<std::string>()), values);
      return values;
    } catch (const po::error& error) {
      refuse(error.what(), help_remedy_);
    }
  }

 private:
  po::parsed_options from_arguments(std::span<const std::string> args) const {
    using namespace po::command_line_style;
    po::positional_options_description words;
    po::command_line_parser parser(std::vector<std::string>(args.begin(), args.end()));
    parser.options(all_)
        .style(allow_long | long_allow_adjacent | long_allow_next | allow_short | short_allow_next |
               allow_dash_for_short)
        .allow_unregistered();
    if (takes_words_) parser.positional(words.add("words", -1));
    po::parsed_options parsed = parser.run();
    for (const po::option& option : parsed.options) check(option);
    return parsed;
  }

  void check(const po::option& option) const {
    if (option.position_key >= 0 && option.string_key.empty()) refuse_word(option.value.at(0));
    const std::string name =
        option.string_key.starts_with('-') ? option.original_tokens.at(0) : "--" + option.string_key;
    if (option.unregistered)
      refuse(fmt::format("unknown option {}", name),
             is_of_slurm(option.string_key)
                 ? "options of sbatch stand before the script's name, those of srun before maniple"
                 : did_you_mean(name, names(all_, "--"), help_remedy_));
    const bool took_next = option.original_tokens.size() == 2 && option.original_tokens[1].starts_with("--");
    if (took_next && all_.find_nothrow(option.original_tokens[1].substr(2), false))
      refuse(fmt::format("{} needs a value, but {} follows", name, option.original_tokens[1]),
             fmt::format("{}=VALUE takes any text as value", name));
  }

  static bool is_of_slurm(std::string_view name) {
    constexpr std::array names = {"nodes",         "ntasks", "ntasks-per-node", "cpus-per-task",
                                  "gpus-per-node", "gpus",   "partition",       "account",
                                  "time",          "mem",    "constraint",      "qos"};
    return std::ranges::find(names, name) != names.end();
  }

  [[noreturn]] void refuse_word(const std::string& word) const {
    const std::string option = option_for_path(word);
    const bool is_path = !option.empty() && in_file_.find_nothrow(option, false);
    refuse(fmt::format("\"{}\" belongs to no option", word),
           is_path ? fmt::format("did you mean --{} {}?", option, word)
                   : fmt::format("put text with spaces into quotes; {}", help_remedy_));
  }

  po::parsed_options from_file(const std::string& path) const {
    std::ifstream file(path);
    if (!file) fail(ExitCode::input, "cannot open the file {} given by --config", path);
    po::parsed_options parsed(&in_file_);
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number) {
      const std::string content = trimmed(line);
      if (!content.empty() && content[0] != '#')
        parsed.options.push_back(from_line(content, fmt::format("{} line {}", path, number)));
    }
    if (file.bad()) fail(ExitCode::input, "cannot read the file {} given by --config", path);
    return parsed;
  }

  po::option from_line(const std::string& line, const std::string& where) const {
    const size_t equals = line.find('=');
    if (equals == std::string::npos)
      refuse(fmt::format("{}: \"{}\" is not of the form name = value", where, line),
             "a switch is turned on by: name = true");
    const std::string name = trimmed(line.substr(0, equals));
    if (!in_file_.find_nothrow(name, false))
      refuse(fmt::format("{}: unknown option \"{}\"", where, name),
             did_you_mean(name, names(in_file_, ""), help_remedy_));
    return {name, {unquoted(trimmed(line.substr(equals + 1)))}};
  }

  std::string help_remedy_;
  bool takes_words_;
  po::options_description in_file_;
  po::options_description all_;
};

}  // namespace

void refuse(const std::string& what, const std::string& remedy, const std::string& why) {
  throw Error(ExitCode::usage, what, why, remedy);
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> words;
  return boost::algorithm::split(words, text, boost::algorithm::is_any_of(","));
}

size_t parse_bytes(const std::string& text) {
  constexpr std::string_view units = "KMGT";
  size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const std::string unit(stopped, end);
  const size_t power = unit.empty() ? 0 : units.find(unit[0]) + 1;  // npos + 1: 0
  const bool known =
      unit.empty() || (power > 0 && (unit.size() == 1 || unit.substr(1) == "iB" || unit.substr(1) == "B"));
  const size_t base = unit.size() == 2 ? 1000 : 1024;
  bool fits = error == std::errc{} && value > 0 && known;
  for (size_t i = 0; fits && i < power; ++i) fits = !__builtin_mul_overflow(value, base, &value);
  if (!fits)
    refuse(fmt::format("\"{}\" is not a number of bytes", text),
           "write it like 512M, 4G or 4GiB (powers of 1024), or 4GB (powers of 1000)");
  return value;
}

std::chrono::milliseconds parse_duration(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stopped, end);
  const double seconds = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc{} || seconds == 0 || !(value >= 0 && value <= 1e6))
    refuse(fmt::format("\"{}\" is not a time", text), "write it like 5, 0.5s, 3m or 2h");
  return std::chrono::milliseconds(static_cast<int64_t>(value * seconds * 1000));
}

std::string did_you_mean(const std::string& name, std::span<const std::string> candidates,
                         const std::string& otherwise) {
  const std::optional<std::string> nearest = nearest_name(name, candidates);
  return nearest ? fmt::format("did you mean {}?", *nearest) : otherwise;
}

std::chrono::milliseconds parse_walltime(const std::string& text) {
  using namespace std::chrono;
  static const std::regex with_days(R"((\d{1,4})-(\d{1,5})(?::(\d{1,5}))?(?::(\d{1,5}))?)");
  static const std::regex without_days(R"(()(?:(\d{1,5}):)?(\d{1,5}):(\d{1,5}))");
  std::smatch parts;
  const bool is_clock =
      std::regex_match(text, parts, with_days) || std::regex_match(text, parts, without_days);
  if (!is_clock && text.find_first_of(":-") == std::string::npos) return parse_duration(text);
  if (!is_clock)
    refuse(
        fmt::format("\"{}\" is not a time", text),
        "write it as Slurm's --time, 04:00:00 or 1-12:00:00 (days-hours:minutes:seconds), or like 4h or 90m");
  const auto part = [&](size_t index) {
    return parts[index].matched ? std::atoi(parts.str(index).c_str()) : 0;
  };
  return days(part(1)) + hours(part(2)) + minutes(part(3)) + seconds(part(4));
}

void Grammar::group(const char* caption) {
  groups_.emplace_back(caption, line_length, description_length);
  captions_.push_back(caption);
}

std::optional<std::string> Grammar::parse(std::span<const std::string> args) {
  if (args.size() == 1 && args[0] == "--man") return man();
  if (args.size() == 1 && args[0] == "--completion") return completion();
  const po::variables_map values = Reader(command_, groups_, words_ != nullptr).read(args);
  if (values["help"].as<bool>()) return help();
  if (values["version"].as<bool>()) return version_text();
  if (values.count("words") != 0) *words_ = values["words"].as<std::vector<std::string>>();
  if (read_words_) read_words_();
  given_ = {{"command", command_}};
  for (const auto& store : stores_) store(values, given_);
  for (const auto& [name, value] : values)
    if (!value.defaulted()) written_.insert(name);
  return std::nullopt;
}

po::options_description Grammar::general() {
  po::options_description general("General", line_length, description_length);
  general.add_options()("config", po::value<std::string>()->value_name("FILE"),
                        "more options, one `name = value` a line; the command line wins")(
      "help,h", po::bool_switch(), "this text")("version,V", po::bool_switch(),
                                                "the version, what it was built with, and CPU paths");
  return general;
}

std::string Grammar::help() const {
  std::ostringstream text;
  text << usage_;
  for (const po::options_description& group : groups_) text << '\n' << group;
  text << '\n' << general();
  return text.str();
}

// Manual pages and bash completion.
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
