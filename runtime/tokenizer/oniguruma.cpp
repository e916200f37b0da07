#include <kernels/support/check.hpp>
#include <runtime/tokenizer/oniguruma.hpp>

#include <unicode/uchar.h>

#include <algorithm>
#include <cctype>

namespace maniple {
namespace {

// Oniguruma's \w under UTF-8, which contains the fractions and superscripts of Latin-1 and no others; PCRE2's
// lacks marks and connectors. \s is translated too: PCRE2's contains U+180E.
constexpr std::string_view word_class = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE)";

// Walks over a pattern once and writes it in PCRE2's syntax.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string translate() {
    while (position_ < pattern_.size()) step();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    fail(ExitCode::input, "tokenizer: '{}' at byte {} of the regular expression '{}' is not supported",
         construct, position_, pattern_);
  }

  bool at(std::string_view text) const { return pattern_.substr(position_).starts_with(text); }
  void copy(size_t count) {
    result_ += pattern_.substr(position_, count);
    position_ = std::min(position_ + count, pattern_.size());
  }

  void step() {
    if (at("\\")) return escape();
    if (in_class_) return class_member();
    if (at("[")) return open_class();
    if (at("(*")) refuse("(*");
    if (at("(?")) check_group();
    if (at("}+")) refuse("}+");  // possessive in PCRE2, a repeated repetition in Oniguruma
    copy(1);
  }

  void open_class() {
    in_class_ = true;
    copy(at("[^") ? 2 : 1);
    if (at("]")) copy(1);
  }

  void class_member() {
    if (at("[")) refuse("[ in a character class");  // a nested class or [:name:] in Oniguruma
    if (at("&&")) refuse("&&");
    if (at("]")) in_class_ = false;
    copy(1);
  }

  // Oniguruma's flags m, s and x mean other things, and its (?i) reaches over the following alternatives.
  void check_group() const {
    for (const char* known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"})
      if (at(known)) return;
    if (position_ == 0 && at("(?i)")) return;
    refuse(pattern_.substr(position_, 4));
  }

  void escape() {
    const char kind = position_ + 1 < pattern_.size() ? pattern_[position_ + 1] : '\0';
    const bool is_word = kind == 'w' || (kind == 'W' && !in_class_);
    if (kind == 's' || kind == 'S') return replace(kind == 's' ? R"(\p{White_Space})" : R"(\P{White_Space})");
    if (is_word && in_class_) return replace(word_class);
    if (is_word) return replace(std::string(kind == 'w' ? "[" : "[^").append(word_class) + "]");
    if (kind == 'p' || kind == 'P') return property();
    if (kind == 'u') return unicode_escape();
    const bool is_letter_or_digit = std::isalnum(static_cast<unsigned char>(kind)) != 0;
    if (is_letter_or_digit && std::string_view("dDnrtfaexAzZ").find(kind) == std::string_view::npos)
      refuse(pattern_.substr(position_, 2));
    copy(2);
    if (kind == 'x' && at("{"))
      copy(std::min(pattern_.find('}', position_), pattern_.size() - 1) - position_ + 1);
  }

  void replace(std::string_view text) {
    result_ += text;
    position_ += 2;
  }

  void unicode_escape() {
    const auto digits = pattern_.substr(position_ + 2, 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse("\\u");
    position_ += 6;
    result_.append("\\x{").append(digits).append("}");
  }

  // Since 10.40 PCRE2 reads \p{Han} as a script extension; Oniguruma means the script.
  void property() {
    const auto close = pattern_.find('}', position_);
    if (pattern_.substr(position_ + 2, 1) != "{" || close == std::string_view::npos) return copy(2);
    const auto length = close + 1 - position_;
    std::string name(pattern_.substr(position_ + 3, length - 4));
    const bool inverted = name.starts_with('^');
    name.erase(0, inverted ? 1 : 0);
    if (name.size() <= 2 || u_getPropertyValueEnum(UCHAR_SCRIPT, name.c_str()) == UCHAR_INVALID_CODE)
      return copy(length);
    result_.append(pattern_.substr(position_, 2))
        .append(inverted ? "{^sc:" : "{sc:")
        .append(name)
        .append("}");
    position_ += length;
  }

  std::string_view pattern_;
  std::string result_;
  size_t position_ = 0;
  bool in_class_ = false;
};

}  // namespace

Regex oniguruma_pattern(std::string_view pattern) {
  return {{"tokenizer", std::string(pattern)}, Translator(pattern).translate(), Regex::Syntax::unicode};
}

Regex literal_pattern(std::string_view text) {
  return {{"tokenizer", std::string(text)}, text, Regex::Syntax::literal};
}

}  // namespace maniple
