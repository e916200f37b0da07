// The options of a command. Each is declared once: name, form of its value, default, help, and target.
#pragma once

#include <launch/options/parsed.hpp>
#include <launch/options/same_options.hpp>

#include <boost/program_options.hpp>

#include <fmt/ranges.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace maniple {

namespace po = boost::program_options;

// Throws an Error (usage). The remedy is what to type instead.
[[noreturn]] void refuse(const std::string& what, const std::string& remedy, const std::string& why = {});

constexpr int32_t no_limit = std::numeric_limits<int32_t>::max();  // of numbers that nothing else limits

// The number that is all of the text.
template <typename T>
std::optional<T> whole_text(std::string_view text) {
  T value{};
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stopped == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Fails (usage) on anything but a number in this range; `name` is the option's, for the message.
template <typename T>
T parse_number(const std::string& name, const std::string& text, T smallest, T largest) {
  const std::optional<T> value = whole_text<T>(text);
  if (std::is_floating_point_v<T> && value && !std::isfinite(*value))
    refuse(fmt::format("--{} ({}) is not a number", name, text), "give a number, or leave the option out");
  if (!(value >= smallest && value <= largest))
    refuse(fmt::format("--{} ({}) must be a {}number from {} to {}", name, text,
                       std::is_integral_v<T> ? "whole " : "", smallest, largest),
           "give another number, or leave the option out");
  return *value;
}

// Of "a,b,c".
std::vector<std::string> split_at_commas(const std::string& text);

// "512", "64K" and "64KiB" (2^10), "64KB" (10^3), up to T. Fails (usage) on anything else.
size_t parse_bytes(const std::string& text);

// "5", "0.5s", "3m", "2h". Fails (usage) on anything else.
std::chrono::milliseconds parse_duration(const std::string& text);

// As in Slurm's --time, "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM" or
// "D-HH:MM:SS", or a duration. Fails (usage) on anything else.
std::chrono::milliseconds parse_walltime(const std::string& text);

// `otherwise`, or "did you mean ...?" if a candidate is near.
std::string did_you_mean(const std::string& name, std::span<const std::string> candidates,
                         const std::string& otherwise);

// The form of an option's value, and where it is stored. T: text (which we check ourselves, so that every
// message about a value is ours), several texts, or bool for a switch. The target must live until parse() has returned.
template <typename T>
struct Value {
  po::typed_value<T>* form;  // the Grammar that it is added to owns it
  std::function<void(const std::string& name, const T& given)> store;
  const char* if_missing = nullptr;       // for a required option: what to type
  std::vector<std::string> choices = {};  // if the value is one of a few words

  Value by_default(const char* text) && { return form->default_value(text), std::move(*this); }
  Value without_value(const char* text) && { return form->implicit_value(text), std::move(*this); }
  Value repeated() && { return form->multitoken()->composing(), std::move(*this); }
  Value or_refuse(const char* remedy) && { return if_missing = remedy, std::move(*this); }
};

// Without a given value and a default the target keeps its value. parse(name, text) makes the value.
Value<std::string> parsed(const char* shown, auto& target, auto parse) {
  return {po::value<std::string>()->value_name(shown),
          [&target, parse](const std::string& name, const std::string& text) { target = parse(name, text); }};
}

Value<std::string> text(const char* shown, auto& target) {
  return parsed(shown, target, [](const std::string&, const std::string& text) { return text; });
}

Value<std::vector<std::string>> texts(const char* shown, auto& target) {
  return {po::value<std::vector<std::string>>()->value_name(shown),
          [&target](const std::string&, const std::vector<std::string>& texts) { target = texts; }};
}

inline std::string whole_path(const std::string& name, const std::string& path) {
  if (path.empty())
    refuse(fmt::format("--{} is empty", name), "is a variable of the shell unset? give a path");
  return path;
}

Value<std::string> path(const char* shown, auto& target) { return parsed(shown, target, whole_path); }

Value<std::vector<std::string>> paths(const char* shown, auto& target) {
  return {po::value<std::vector<std::string>>()->value_name(shown),
          [&target](const std::string& name, const std::vector<std::string>& paths) {
            for (const std::string& path : paths) whole_path(name, path);
            target = paths;
          }};
}

// A switch that is on makes the target `value`.
Value<bool> on(auto& target, bool value = true) {
  return {po::bool_switch(), [&target, value](const std::string&, bool given) {
            if (given) target = value;
          }};
}

// The type of the bounds is the type of the value.
template <typename T>
Value<std::string> number(auto& target, T smallest, T largest) {
  return parsed(std::is_integral_v<T> ? "N" : "X", target,
                [=](const std::string& name, const std::string& text) {
                  return parse_number(name, text, smallest, largest);
                });
}

Value<std::string> bytes(auto& target) {
  return parsed("BYTES", target,
                [](const std::string&, const std::string& text) { return parse_bytes(text); });
}

Value<std::string> duration(auto& target, std::chrono::seconds least = {}, const char* remedy = "",
                            const char* why = "") {
  return parsed("TIME", target, [=](const std::string& name, const std::string& text) {
    const std::chrono::milliseconds time = parse_duration(text);
    if (time < least) refuse(fmt::format("--{} ({}) is below {} s", name, text, least.count()), remedy, why);
    return time;
  });
}

// The first one is the default.
template <typename T>
Value<std::string> choice(const char* shown, T& target,
                          std::vector<std::pair<const char*, std::type_identity_t<T>>> choices) {
  std::vector<std::string> known;
  for (const auto& [word, value] : choices) known.emplace_back(word);
  Value<std::string> one_of = parsed(shown, target, [=](const std::string& name, const std::string& text) {
    for (const auto& [word, value] : choices)
      if (text == word) return value;
    refuse(fmt::format("--{} ({}) must be one of: {}", name, text, fmt::join(known, ", ")),
           did_you_mean(text, known, fmt::format("--{} {}", name, known.front())));
  });
  one_of.choices = known;
  return std::move(one_of).by_default(choices.front().first);
}

// The form in GivenOptions; nothing for a switch that is off.
inline std::optional<std::string> given_text(const std::string& text) { return text; }
inline std::optional<std::string> given_text(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, " "));
}
inline std::optional<std::string> given_text(bool on) { return on ? std::optional("") : std::nullopt; }

class Grammar {
 public:
  Grammar(std::string command, std::string_view usage) : command_(std::move(command)), usage_(usage) {}

  // Options added from here on appear below this caption.
  void group(const char* caption);

  template <typename T>
  void add(const char* name, Value<T> value, const char* help) {
    groups_.back().add_options()(name, value.form, help);
    if (!value.choices.empty()) choices_[name] = value.choices;
    stores_.push_back(
        [name = std::string(name), value](const po::variables_map& values, GivenOptions& given) {
          if (values.count(name) == 0) {
            if (value.if_missing) refuse(fmt::format("no {} was given", name), value.if_missing);
            return;
          }
          const T& text = values[name].as<T>();
          value.store(name, text);
          if (const auto shown = given_text(text)) given[name] = *shown;
        });
  }

  // Stores the words that belong to no option in `words`. completed: the words to choose from; none: files. read: called with the words,
  // before the value of any option is looked at.
  void take_words(std::vector<std::string>& words, std::vector<std::string> completed = {},
                  std::function<void()> read = {}) {
    words_ = &words;
    completed_words_ = std::move(completed);
    read_words_ = std::move(read);
  }

  // Stores all values in the order of their declarations. Returns the text to print instead, if one
  // is asked for: help or version, or (given alone, not shown in the help) --man and --completion.
  std::optional<std::string> parse(std::span<const std::string> args);
  // Options of every command.
  static po::options_description general();
  // After parse(): the options as text, with the command.
  const GivenOptions& given() const { return given_; }
  // Of these, the options that somebody wrote: no defaults.
  bool wrote(const std::string& name) const { return written_.contains(name); }

 private:
  std::string help() const;
  std::string man() const;
  std::string completion() const;  // of this command: a part of completion_script

  std::string command_;
  std::string_view usage_;
  std::vector<po::options_description> groups_;
  std::vector<const char*> captions_;  // of the groups
  std::vector<std::function<void(const po::variables_map&, GivenOptions&)>> stores_;
  std::map<std::string, std::vector<std::string>> choices_;
  GivenOptions given_;
  std::set<std::string> written_;
  std::vector<std::string>* words_ = nullptr;
  std::vector<std::string> completed_words_;
  std::function<void()> read_words_;
};

// Manual pages and bash completion are made of the declarations: `maniple --man`,
// `maniple COMMAND --man` and `maniple --completion` print them when the program is built.
// In roff: maniple.1. Those of the commands are maniple-COMMAND.1.
std::string overview_page(std::string_view overview, std::span<const std::string> commands);
// part_of: what `maniple COMMAND --completion` prints.
std::string completion_script(std::span<const std::string> commands,
                              const std::function<std::string(const std::string& command)>& part_of);

}  // namespace maniple
