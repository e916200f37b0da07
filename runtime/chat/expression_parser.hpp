// Parses expressions of a template by recursive descent. Each becomes a function that calls
// those of its parts.
#pragma once

#include <runtime/chat/program.hpp>
#include <runtime/chat/token_reader.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maniple::jinja {

// The arguments of a call in the template's text.
struct Call {
  std::vector<Expression> positional;
  std::vector<std::pair<std::string, Expression>> named;

  Arguments arguments(Frame& frame) const {
    Arguments values;
    for (const Expression& argument : positional) values.positional.push_back(argument(frame));
    for (const auto& [name, argument] : named) assign(values.named, name, argument(frame));
    return values;
  }
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
