#include <runtime/chat/expression_parser.hpp>

#include <charconv>

namespace maniple::jinja {
namespace {

using Kind = Token::Kind;

struct Comparison {
  std::string op;
  Expression right;
};

bool compare(std::string_view op, const Value& left, const Value& right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  if (op == "in") return contains(right, left);
  if (op == "not in") return !contains(right, left);
  if (op == "<") return less(left, right);
  if (op == ">") return less(right, left);
  return op == "<=" ? !less(right, left) : !less(left, right);
}

template <typename Number>
Number number(const Token& token) {
  Number value{};
  const std::string& text = token.text;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{})
    refuse_template(token.line, fmt::format("the number {} is too large", text));
  return value;
}

}  // namespace

Expression ExpressionParser::make(std::function<Value(Frame&)> action) {
  constexpr int max_in_a_tag = 2000;
  if (++made_in_tag_ > max_in_a_tag) refuse(fmt::format("a tag with more than {} operations", max_in_a_tag));
  return {line(), std::move(action)};
}

Expression ExpressionParser::constant(Value value) {
  return make([value = std::move(value)](Frame&) { return value; });
}

Expression ExpressionParser::tuple(Expression (ExpressionParser::*part)()) {
  Expression first = (this->*part)();
  if (!at(",")) return first;
  std::vector<Expression> items{std::move(first)};
  while (accept(",") && !at_tuple_end()) items.push_back((this->*part)());
  return sequence(Sequence::Kind::tuple, std::move(items));
}

bool ExpressionParser::at_tuple_end() const {
  return at(")") || token().kind == Kind::end_block || token().kind == Kind::end_output;
}

Expression ExpressionParser::sequence(Sequence::Kind kind, std::vector<Expression> items) {
  return make([kind, items = std::move(items)](Frame& frame) {
    Items values;
    for (const Expression& item : items) values.push_back(item(frame));
    return frame.run.charged({kind, std::move(values)});
  });
}

Expression ExpressionParser::expression() {
  const Level level(*this);
  Expression value = disjunction();
  while (accept("if")) {
    Expression condition = disjunction();
    Expression otherwise =
        accept("else") ? expression() : constant(Undefined{"the condition is false and there is no else"});
    value = make([=](Frame& frame) { return truth(condition(frame)) ? value(frame) : otherwise(frame); });
  }
  return value;
}

Expression ExpressionParser::disjunction() { return junction("or", false, &ExpressionParser::conjunction); }
Expression ExpressionParser::conjunction() { return junction("and", true, &ExpressionParser::negation); }

// Evaluates the next operand only while the value is `wanted`.
Expression ExpressionParser::junction(std::string_view word, bool wanted,
                                      Expression (ExpressionParser::*part)()) {
  Expression left = (this->*part)();
  while (accept(word))
    left = make([left, wanted, right = (this->*part)()](Frame& frame) {
      Value value = left(frame);
      return truth(value) == wanted ? right(frame) : value;
    });
  return left;
}

Expression ExpressionParser::negation() {
  const Level level(*this);
  if (!accept("not")) return comparison();
  return make([value = negation()](Frame& frame) -> Value { return !truth(value(frame)); });
}

// a < b < c: evaluates the comparisons until one fails.
Expression ExpressionParser::comparison() {
  Expression left = arithmetic(0);
  std::vector<Comparison> rest;
  for (std::string op; !(op = comparison_operator()).empty();) rest.push_back({op, arithmetic(0)});
  if (rest.empty()) return left;
  return make([left, rest](Frame& frame) -> Value {
    Value value = left(frame);
    for (const auto& [op, right] : rest) {
      Value next = right(frame);
      if (!compare(op, value, next)) return false;
      value = std::move(next);
    }
    return true;
  });
}

std::string ExpressionParser::comparison_operator() {
  if (!at("not") || !at("in", 1)) return accept_any({"==", "!=", "<=", ">=", "<", ">", "in"});
  skip(2);
  return "not in";
}

Expression ExpressionParser::arithmetic(size_t tightness) {
  static const Names operators[] = {{"+", "-"}, {"~"}, {"*", "//", "/", "%"}};
  if (tightness == std::size(operators)) return unary(true);
  Expression left = arithmetic(tightness + 1);
  for (std::string op; !(op = accept_any(operators[tightness])).empty();)
    left = make([op, left, right = arithmetic(tightness + 1)](Frame& frame) {
      const Value first = left(frame);
      return frame.run.charged(binary(op, first, right(frame)));
    });
  return left;
}

Expression ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  const std::string sign = accept_any({"-", "+"});
  Expression value = sign.empty() ? primary() : unary(false);
  if (!sign.empty())
    value = make([sign, value](Frame& frame) -> Value {
      const Value operand = value(frame);
      if (const double* number = operand.as<double>()) return sign == "-" ? -*number : *number;
      return binary(sign, 0, operand);
    });
  value = postfix(value);
  return with_filters ? filtered(value) : value;
}

Expression ExpressionParser::primary() {
  const Token first = token();
  skip(1);
  switch (first.kind) {
    case Kind::name:
      return name(first.text);
    case Kind::text:
      return constant(texts(first.text));
    case Kind::integer:
      return constant(number<int64_t>(first));
    case Kind::real:
      return constant(number<double>(first));
    default:
      break;
  }
  if (first.kind == Kind::symbol && first.text == "(")
    return accept(")") ? sequence(Sequence::Kind::tuple, {}) : in_parentheses();
  if (first.kind == Kind::symbol && first.text == "[") return sequence(Sequence::Kind::list, listed("]"));
  if (first.kind == Kind::symbol && first.text == "{") return dictionary();
  back();
  unexpected();
}

Expression ExpressionParser::in_parentheses() {
  Expression inside = tuple();
  expect(")");
  return inside;
}

Expression ExpressionParser::name(const std::string& name) {
  if (name == "true" || name == "True") return constant(true);
  if (name == "false" || name == "False") return constant(false);
  if (name == "none" || name == "None") return constant(None{});
  if (in_macro_ && (name == "varargs" || name == "kwargs" || name == "caller")) {
    caught_.insert(name);
    return make([name](Frame&) -> Value { throw TemplateError(name + " in a macro is not supported"); });
  }
  return make([name](Frame& frame) -> Value {
    const Value* found = frame.scope->find(name);
    return found ? *found : Undefined{fmt::format("{} is undefined", name)};
  });
}

// Adjacent text literals are one text.
std::string ExpressionParser::texts(std::string text) {
  while (token().kind == Kind::text) text += take(Kind::text, "a text").text;
  return text;
}

std::vector<Expression> ExpressionParser::listed(std::string_view end) {
  std::vector<Expression> items;
  list(end, [&] { items.push_back(expression()); });
  return items;
}

Expression ExpressionParser::dictionary() {
  std::vector<std::pair<Expression, Expression>> entries;
  list("}", [&] {
    Expression key = expression();
    expect(":");
    entries.emplace_back(std::move(key), expression());
  });
  return make([entries = std::move(entries)](Frame& frame) -> Value {
    Entries values;
    for (const auto& [key, value] : entries) {
      const Value name = key(frame);
      if (!name.is<std::string>()) throw TemplateError("only texts are supported as keys of a dictionary");
      assign(values, text_of(name), value(frame));
    }
    return values;
  });
}

Expression ExpressionParser::postfix(Expression value) {
  return followed(std::move(value), {".", &ExpressionParser::member}, {"[", &ExpressionParser::item});
}

Expression ExpressionParser::filtered(Expression value) {
  return followed(std::move(value), {"|", &ExpressionParser::filter}, {"is", &ExpressionParser::test});
}

Expression ExpressionParser::followed(Expression value, const Follower& one, const Follower& other) {
  for (;;) {
    if (accept(one.word))
      value = (this->*one.part)(value);
    else if (accept(other.word))
      value = (this->*other.part)(value);
    else if (at("("))
      value = called(value);
    else
      return value;
  }
}

Expression ExpressionParser::member(const Expression& value) {
  if (token().kind == Kind::integer) return make_subscript(value, primary());
  return make([value, name = take_name()](Frame& frame) { return attribute(value(frame), name); });
}

Expression ExpressionParser::make_subscript(const Expression& value, const Expression& key) {
  return make([=](Frame& frame) {
    const Value subject = value(frame);
    return subscript(subject, key(frame));
  });
}

Expression ExpressionParser::item(const Expression& value) {
  const auto bound = [&] { return at(":") || at("]") ? constant(None{}) : expression(); };
  Expression start = bound();
  if (accept("]")) return make_subscript(value, start);
  expect(":");
  Expression stop = bound();
  Expression step = accept(":") ? bound() : constant(None{});
  expect("]");
  return make([=](Frame& frame) {
    const Value subject = value(frame), first = start(frame), last = stop(frame);
    return frame.run.charged(slice(subject, first, last, step(frame)));
  });
}

Expression ExpressionParser::called(const Expression& callee) {
  return make([callee, call_site = arguments()](Frame& frame) {
    const Value function = callee(frame);
    Arguments values = call_site.arguments(frame);
    return call(function, values, frame);
  });
}

Arguments Call::arguments(Frame& frame) const {
  Arguments values;
  for (const Expression& argument : positional) values.positional.push_back(argument(frame));
  if (unpacked)
    std::ranges::copy(items_of(frame.run.charged((*unpacked)(frame))), std::back_inserter(values.positional));
  for (const auto& [name, argument] : named) assign(values.named, name, argument(frame));
  if (!unpacked_named) return values;
  const Value further = (*unpacked_named)(frame);
  if (!further.is<Dict>()) throw TemplateError("only a dictionary can be unpacked with **");
  for (const auto& [name, value] : further.as<Dict>()->entries) {
    if (find(values.named, name)) throw TemplateError(fmt::format("two values for the argument {}", name));
    values.named.emplace_back(name, value);
  }
  return values;
}

Call ExpressionParser::arguments() {
  Call call;
  if (!accept("(")) return call;
  list(")", [&] {
    const bool is_named = token().kind == Kind::name && at("=", 1);
    if (call.unpacked_named) refuse("an argument follows one with **");
    if (accept("**")) {
      call.unpacked_named = expression();
    } else if (is_named) {
      std::string name = take_name();
      expect("=");
      call.named.emplace_back(std::move(name), expression());
    } else if (call.unpacked) {
      refuse("an argument without a name follows one with *");
    } else if (accept("*")) {
      call.unpacked = expression();
    } else if (!call.named.empty()) {
      refuse("an argument without a name follows one with a name");
    } else {
      call.positional.push_back(expression());
    }
  });
  return call;
}

Expression ExpressionParser::filter(const Expression& subject) {
  return make([name = take_name(), subject, call_site = arguments()](Frame& frame) {
    const Filter function = filter_named(name);
    const Value value = subject(frame);
    Arguments values = call_site.arguments(frame);
    Value result = function(value, values, frame);
    values.finish();
    return frame.run.charged(std::move(result));
  });
}

Expression ExpressionParser::test(const Expression& subject) {
  const bool expected = !accept("not");
  const std::string name = take_name();
  Call call_site = at("(") ? arguments() : Call{};
  if (at_operand()) call_site.positional.push_back(postfix(primary()));
  return make([=](Frame& frame) -> Value {
    const Value value = subject(frame);
    Arguments values = call_site.arguments(frame);
    const bool holds = test_named(name)(value, values);
    values.finish();
    return holds == expected;
  });
}

// Whether the argument of a test follows without parentheses.
bool ExpressionParser::at_operand() const {
  const Kind kind = token().kind;
  if (kind == Kind::name) return !at("else") && !at("or") && !at("and") && !at("is") && !at("if");
  return kind == Kind::text || kind == Kind::integer || kind == Kind::real || at("[") || at("{");
}

}  // namespace maniple::jinja
