// Changes text before it is cut: Unicode normal forms, lower case, replacements, a prefix.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <runtime/text/regex.hpp>

namespace maniple {

// NFC, NFD, NFKC or NFKD as of Unicode 9, the version of the tables in Hugging Face tokenizers: characters
// that were assigned later are left alone.
class UnicodeForm {
 public:
  explicit UnicodeForm(std::string_view name);
  std::string apply(const std::string& text) const;

 private:
  struct Implementation;
  std::shared_ptr<const Implementation> implementation_;
};

struct Lowercase {};  // character by character: no context, no language

struct Prepend {
  std::string prefix;  // empty text stays empty
};

struct Replace {
  Regex pattern;
  std::string content;
  std::string apply(std::string_view text) const;
};

using NormalizerStep = std::variant<UnicodeForm, Lowercase, Prepend, Replace>;

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps = {}) : steps_(std::move(steps)) {}
  std::string normalize(std::string text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace maniple
