// Parses expressions of a template by recursive descent. Each becomes a function that calls
// those of its parts.
#pragma once

#include <runtime/chat/lexer.hpp>
#include <runtime/chat/program.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maniple::jinja {

using Names = std::vector<std::string_view>;

// The tokens of a template, one after the other.
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

// The arguments of a call in the template's text.
struct Call {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;
  std::optional<Expression> unpacked, unpacked_named;  // after * and **

  Arguments arguments(Frame& frame) const;
};

class ExpressionParser : protected TokenReader {
 protected:
  explicit ExpressionParser(std::string_view source) : TokenReader(source) {}

  // Held during a recursion: limits the depth of the parser, and of the functions that it makes.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      constexpr int most = 300;
      if (++parser.levels_ > most) parser.refuse(fmt::format("nested deeper than {} levels", most));
    }
    ~Level() { --parser_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // One value, or several with commas between them.
  Expression tuple(Expression (ExpressionParser::*part)() = &ExpressionParser::expression);
  Expression expression();
  Expression disjunction();  // an expression without an inline if
  Expression filter(const Expression& subject);
  Expression make(std::function<Value(Frame&)> action);

  // Counts the functions made for one tag, {{ }} or {% %}, from 0.
  void begin_tag() { made_in_tag_ = 0; }
  bool in_macro_ = false;
  std::set<std::string, std::less<>> caught_;  // names of a macro's further arguments that its body uses

 private:
  Expression constant(Value value);
  Expression sequence(Sequence::Kind kind, std::vector<Expression> items);
  bool at_tuple_end() const;
  Expression junction(std::string_view word, bool wanted, Expression (ExpressionParser::*part)());
  Expression conjunction();
  Expression negation();
  Expression comparison();
  std::string comparison_operator();
  Expression arithmetic(size_t tightness);
  Expression unary(bool with_filters);
  Expression primary();
  Expression in_parentheses();
  Expression name(const std::string& name);
  std::string texts(std::string text);
  std::vector<Expression> listed(std::string_view end);
  Expression dictionary();
  // What may follow a value, besides the arguments of a call.
  struct Follower {
    std::string_view word;
    Expression (ExpressionParser::*part)(const Expression& value);
  };
  Expression followed(Expression value, const Follower& one, const Follower& other);
  Expression postfix(Expression value);
  Expression member(const Expression& value);
  Expression make_subscript(const Expression& value, const Expression& key);
  Expression item(const Expression& value);
  Expression called(const Expression& callee);
  Call arguments();
  Expression filtered(Expression value);
  Expression test(const Expression& subject);
  bool at_operand() const;

  int levels_ = 0, made_in_tag_ = 0;
};

}  // namespace maniple::jinja
