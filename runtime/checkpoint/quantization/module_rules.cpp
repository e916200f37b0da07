#include <runtime/checkpoint/quantization/module_rules.hpp>
#include <runtime/checkpoint/wrapped_names.hpp>

#include <algorithm>

namespace maniple {

ModulePattern ModulePattern::name_class_or_regex(const std::string& entry, const std::string& where) {
  if (entry.starts_with("re:")) {
    ModulePattern pattern = regex(entry.substr(3), where);
    pattern.text_ = entry;
    return pattern;
  }
  return {entry == "Linear" ? Kind::linear : Kind::name, entry};
}

ModulePattern ModulePattern::part_of_name(const std::string& entry) { return {Kind::part, entry}; }

ModulePattern ModulePattern::prefix_or_suffix(const std::string& entry) {
  return {Kind::prefix_or_suffix, entry};
}

ModulePattern ModulePattern::regex(const std::string& text, const std::string& where) {
  ModulePattern pattern{Kind::regex, text};
  pattern.regex_.emplace(Regex::Source{where, text, "it says which modules are quantised",
                                       "get the config.json that the model was published with"},
                         text, Regex::Syntax::at_start);
  return pattern;
}

bool ModulePattern::matches(std::string_view module) const {
  if (fits(module)) return true;
  if (text_.find("language_model") == text_.npos) return false;
  return std::ranges::any_of(stored_names(module), [&](const std::string& name) { return fits(name); });
}

bool ModulePattern::fits(std::string_view module) const {
  switch (kind_) {
    case Kind::name:
      return module == text_;
    case Kind::linear:
      return is_linear(module);
    case Kind::part:
      return module.find(text_) != module.npos;
    case Kind::prefix_or_suffix:
      return module.ends_with(text_) ||
             (module.starts_with(text_) && module.size() > text_.size() && module[text_.size()] == '.');
    case Kind::regex:
      break;
  }
  return regex_->matches(module);
}

std::optional<std::string> entry_of(const ModulePatterns& patterns, std::string_view module) {
  const auto found = std::ranges::find_if(patterns, [&](const auto& p) { return p.matches(module); });
  return found == patterns.end() ? std::nullopt : std::optional(found->text());
}

bool is_linear(std::string_view module) { return !module.ends_with("embed_tokens"); }

}  // namespace maniple
