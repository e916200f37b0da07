// Lists of modules in quantization_config: which modules an entry names, as each publisher reads it.
#pragma once

#include <runtime/text/regex.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// One entry of a list. Cheap to copy.
class ModulePattern {
 public:
  // compressed-tensors: a name, "Linear" (every matrix that is not the embedding), or "re:" and a regular expression.
  static ModulePattern name_class_or_regex(const std::string& entry, const std::string& where);
  static ModulePattern part_of_name(const std::string& entry);  // AWQ
  static ModulePattern prefix_or_suffix(
      const std::string& entry);  // FP8: the first names of a path, or its end
  // As Python's re.match: anchored at the start, not at the end. Throws Error (input) with the position of a mistake.
  static ModulePattern regex(const std::string& pattern, const std::string& where);

  const std::string& text() const { return text_; }
  bool is_class() const { return kind_ == Kind::linear; }
  // module: of the plain model; an entry that names a language_model means it as a wrapper stores it. Throws Error (input) if a regular expression takes
  // too many steps.
  bool matches(std::string_view module) const;

 private:
  enum class Kind { name, linear, regex, part, prefix_or_suffix };
  bool fits(std::string_view module) const;
  ModulePattern(Kind kind, std::string text) : kind_(kind), text_(std::move(text)) {}

  Kind kind_;
  std::string text_;
  std::optional<Regex> regex_;
};

using ModulePatterns = std::vector<ModulePattern>;
// The text of the first that matches.
std::optional<std::string> entry_of(const ModulePatterns& patterns, std::string_view module);
// Whether a module is of the class Linear.
bool is_linear(std::string_view module);

}  // namespace maniple
