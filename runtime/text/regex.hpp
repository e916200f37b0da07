// Regular expressions, run by PCRE2 within limits of steps and memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
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
  enum class Syntax {
    unicode,
    literal,
    at_start
  };  // at_start: as Python's re.match, with a hundredth of the steps
  // For messages: where the pattern stands and its text there, which may be another one than what PCRE2 gets.
  struct Source {
    std::string where, text, why = {}, remedy = {};
  };
  // Throws Error (input), with the position, on a pattern that does not compile.
  Regex(Source source, std::string_view pattern, Syntax syntax);

  // The matches and what lies between them, in order; together they cover the text, which must be valid
  // UTF-8. Throws Error (input), like matches(), when a match takes more steps than the limits allow.
  std::vector<Span> spans(std::string_view text) const;
  bool matches(std::string_view text) const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace maniple
