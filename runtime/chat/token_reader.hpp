// The tokens of a template, one after the other, for the parsers.
#pragma once

#include <runtime/chat/lexer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace maniple::jinja {

using Names = std::vector<std::string_view>;

class TokenReader {
 public:
  explicit TokenReader(std::string_view source) : tokens_(lex(source)) {}

  const Token& token(size_t ahead = 0) const {
    return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return token().line; }
  [[noreturn]] void refuse(std::string_view problem) const { refuse_template(line(), problem); }
  [[noreturn]] void unexpected() const { refuse(fmt::format("unexpected \"{}\"", token().text)); }

  bool at(std::string_view word, size_t ahead = 0) const {
    const Token& next = token(ahead);
    return (next.kind == Token::Kind::name || next.kind == Token::Kind::symbol) && next.text == word;
  }
  bool accept(std::string_view word) {
    const bool found = at(word);
    position_ += found;
    return found;
  }
  void expect(std::string_view word) {
    if (!accept(word)) refuse(fmt::format("expected \"{}\", found \"{}\"", word, token().text));
  }
  std::string accept_any(const Names& words) {
    for (const std::string_view word : words)
      if (accept(word)) return std::string(word);
    return "";
  }
  // Calls take_item() for each item of a list up to `end`; a comma may also precede `end`.
  template <typename TakeItem>
  void list(std::string_view end, TakeItem take_item) {
    for (bool is_first = true; !accept(end); is_first = false) {
      if (!is_first) expect(",");
      if (!is_first && accept(end)) return;
      take_item();
    }
  }
  Token take(Token::Kind kind, std::string_view what) {
    if (token().kind != kind) refuse(fmt::format("expected {}, found \"{}\"", what, token().text));
    return tokens_[position_++];
  }
  std::string take_name() { return take(Token::Kind::name, "a name").text; }
  void skip(size_t count) { position_ += count; }
  void back() { --position_; }

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace maniple::jinja
