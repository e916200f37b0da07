// Regular expressions of tokenizer.json. Their language is Oniguruma's (as in Hugging Face tokenizers), and
// PCRE2 runs them: syntax with another meaning in PCRE2 is translated, or refused by name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maniple {

// A part of a text, in bytes.
struct Span {
  size_t begin, end;
  bool is_match;
};

// Cheap to copy; safe to use from several threads.
class Regex {
 public:
  // Throws Error (input) on a pattern that does not compile or that PCRE2 cannot run with
  // Oniguruma's meaning.
  static Regex from_pattern(std::string_view oniguruma);
  static Regex from_literal(std::string_view text);

  // The matches and what lies between them, in order; together they cover the text, which must be valid
  // UTF-8. Throws Error (input) when a match takes more steps than PCRE2's limits allow.
  std::vector<Span> spans(std::string_view text) const;

 private:
  struct Program;
  explicit Regex(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace maniple
