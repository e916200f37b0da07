#include <runtime/tokenizer/regex.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cctype>
#include <kernels/support/check.hpp>
#include <optional>
#include <runtime/tokenizer/utf8.hpp>

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

std::string message_of(int code) {
  unsigned char buffer[256];
  const int length = pcre2_get_error_message(code, buffer, sizeof buffer);
  return {reinterpret_cast<const char*>(buffer), static_cast<size_t>(std::max(length, 0))};
}

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

constexpr uint32_t heap_limit_kib = 256 * 1024;

}  // namespace

struct Regex::Program {
  std::string pattern;
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_context, Free> limits{pcre2_match_context_create(nullptr)};

  Program(std::string_view source, const std::string& translated, uint32_t options) : pattern(source) {
    const std::unique_ptr<pcre2_compile_context, Free> context(pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int error = 0;
    size_t offset = 0;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             options | PCRE2_UTF, &error, &offset, context.get()));
    if (!code) fail(ExitCode::input, "tokenizer: regular expression '{}': {}", pattern, message_of(error));
    // Without a JIT compiler PCRE2 interprets the pattern.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    pcre2_set_heap_limit(limits.get(), heap_limit_kib);
  }

  std::optional<Span> find(std::string_view text, size_t start, pcre2_match_data* data) const {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options,
                         data, limits.get());
    };
    int result = match(PCRE2_NO_UTF_CHECK);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
      result = match(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);  // the interpreter uses the heap
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (result < 0)
      fail(ExitCode::input, "tokenizer: regular expression '{}' gave up: {}", pattern, message_of(result));
    const size_t* bounds = pcre2_get_ovector_pointer(data);
    return Span{bounds[0], bounds[1], true};
  }
};

Regex Regex::from_pattern(std::string_view oniguruma) {
  return Regex(
      std::make_shared<Program>(oniguruma, Translator(oniguruma).translate(), PCRE2_UCP | PCRE2_MULTILINE));
}

Regex Regex::from_literal(std::string_view text) {
  return Regex(std::make_shared<Program>(text, std::string(text), PCRE2_LITERAL));
}

// An empty match right after the previous match does not count (as in the onig crate's find_iter).
std::vector<Span> Regex::spans(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create(1, nullptr));
  std::vector<Span> spans;
  size_t covered = 0, start = 0;
  std::optional<size_t> last_match_end;
  while (!text.empty() && start <= text.size()) {
    const auto match = program_->find(text, start, data.get());
    if (!match) break;
    if (match->begin == match->end && last_match_end == match->end) {
      start += start < text.size() ? character_at(text, start).size() : 1;
      continue;
    }
    if (covered < match->begin) spans.push_back({covered, match->begin, false});
    spans.push_back(*match);
    covered = start = match->end;
    last_match_end = match->end;
  }
  if (covered < text.size()) spans.push_back({covered, text.size(), false});
  return spans;
}

}  // namespace maniple
