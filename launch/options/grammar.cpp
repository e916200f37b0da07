#include <kernels/support/check.hpp>
#include <kernels/support/nearest_name.hpp>
#include <launch/options/grammar.hpp>
#include <launch/options/version.hpp>

#include <boost/algorithm/string.hpp>

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

}  // namespace maniple
