#include <runtime/chat/lexer.hpp>
#include <runtime/chat/program.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace maniple::jinja {

namespace {

using Kind = Token::Kind;
using Names = std::vector<std::string_view>;
// Stores a value under the names of {% set %} or {% for %}.
using Target = std::function<void(Frame&, const Value&)>;

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

struct Parameter {
  std::string name;
  std::optional<Expression> otherwise;
};

struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
};

// A macro sees the names around its definition as they are when it is called. It does not own them: they own
// it.
Value bind_macro(const std::shared_ptr<const Macro>& macro, const std::shared_ptr<Scope>& scope) {
  return Function{[macro, around = std::weak_ptr<Scope>(scope)](Arguments& arguments, Frame& frame) -> Value {
    const std::shared_ptr<Scope> definition = around.lock();
    if (!definition)
      throw TemplateError(
          fmt::format("the macro {} is called outside the block that defines it", macro->name));
    std::string output;
    Frame inside = Frame{definition, output, frame.run}.inner();
    for (const Parameter& parameter : macro->parameters) {
      std::optional<Value> given = arguments.take(parameter.name);
      if (!given && parameter.otherwise) given = (*parameter.otherwise)(inside);
      inside.scope->names[parameter.name] = given.value_or(
          Undefined{fmt::format("the argument {} of macro {} is not given", parameter.name, macro->name)});
    }
    arguments.finish();
    run_body(macro->body, inside);
    return output;
  }};
}

constexpr size_t work_of_round = 256;  // what a scope and the loop variable take, in bytes

struct Loop {
  Target target;
  Expression items;
  std::optional<Expression> condition;
  Body body, otherwise;

  Items selected(Frame& frame) const {
    Items all = items_of(items(frame));
    if (condition) std::erase_if(all, [&](const Value& item) { return !is_wanted(item, frame); });
    return all;
  }

  bool is_wanted(const Value& item, const Frame& frame) const {
    Frame inside = frame.inner();
    target(inside, item);
    return truth((*condition)(inside));
  }

  // As in Jinja, {% else %} runs unless one round ran to its end: not even after a break.
  Flow run(Frame& frame) const {
    const Items all = selected(frame);
    bool is_done = false;
    for (size_t i = 0; i < all.size(); ++i) {
      frame.run.charge(work_of_round);
      Frame inside = frame.inner();
      target(inside, all[i]);
      inside.scope->names["loop"] = state(all, i);
      const Flow flow = run_body(body, inside);
      is_done = is_done || flow == Flow::on;
      if (flow == Flow::leave_loop) break;
    }
    Frame inside = frame.inner();
    return is_done ? Flow::on : run_body(otherwise, inside);
  }

  static Value state(const Items& all, size_t index) {
    const auto neighbour = [&](size_t at) {
      return at < all.size() ? all[at] : Undefined{"there is no such item"};
    };
    const auto cycle = [index](Arguments& values, Frame&) -> Value {
      const Items choices = std::exchange(values.positional, {});
      if (choices.empty()) throw TemplateError("no items for cycling given");
      return choices[index % choices.size()];
    };
    return std::make_shared<const Namespace>(Namespace{{{"index", index + 1},
                                                        {"index0", index},
                                                        {"revindex", all.size() - index},
                                                        {"revindex0", all.size() - index - 1},
                                                        {"first", index == 0},
                                                        {"last", index + 1 == all.size()},
                                                        {"length", all.size()},
                                                        {"depth", 1},
                                                        {"depth0", 0},
                                                        {"previtem", neighbour(index - 1)},
                                                        {"nextitem", neighbour(index + 1)},
                                                        {"cycle", Function{cycle}}}});
  }
};

// By recursive descent. Every operation becomes a function that the ones around it call.
class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(lex(source)) {}

  Body run() {
    Body body = body_until({});
    if (token().kind != Kind::end) unexpected();
    return body;
  }

 private:
  // ---- tokens

  const Token& token(size_t ahead = 0) const {
    return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return token().line; }
  [[noreturn]] void refuse(std::string_view problem) const { refuse_template(line(), problem); }
  [[noreturn]] void unexpected() const { refuse(fmt::format("unexpected \"{}\"", token().text)); }

  bool at(std::string_view word, size_t ahead = 0) const {
    const Token& next = token(ahead);
    return (next.kind == Kind::name || next.kind == Kind::symbol) && next.text == word;
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
  Token take(Kind kind, std::string_view what) {
    if (token().kind != kind) refuse(fmt::format("expected {}, found \"{}\"", what, token().text));
    return tokens_[position_++];
  }
  std::string take_name() { return take(Kind::name, "a name").text; }

  // Bounds the recursion of the parser, and of the functions that it makes, with what it is held for.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      constexpr int most = 300;
      if (++parser.levels_ > most) parser.refuse(fmt::format("nested deeper than {} levels", most));
    }
    ~Level() { --parser_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  Expression make(std::function<Value(Frame&)> action) {
    constexpr int most_in_a_tag = 2000;
    if (++made_in_tag_ > most_in_a_tag)
      refuse(fmt::format("a tag with more than {} operations", most_in_a_tag));
    return {line(), std::move(action)};
  }
  Expression constant(Value value) {
    return make([value = std::move(value)](Frame&) { return value; });
  }

  // ---- expressions, from the loosest binding to the closest

  // One value, or several with commas between them.
  Expression tuple(Expression (Parser::*part)() = &Parser::expression) {
    Expression first = (this->*part)();
    if (!at(",")) return first;
    std::vector<Expression> items{std::move(first)};
    while (accept(",") && !at_tuple_end()) items.push_back((this->*part)());
    return sequence(Sequence::Kind::tuple, std::move(items));
  }
  bool at_tuple_end() const {
    return at(")") || token().kind == Kind::end_block || token().kind == Kind::end_output;
  }

  Expression sequence(Sequence::Kind kind, std::vector<Expression> items) {
    return make([kind, items = std::move(items)](Frame& frame) {
      Items values;
      for (const Expression& item : items) values.push_back(item(frame));
      return frame.run.charged({kind, std::move(values)});
    });
  }

  Expression expression() {
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

  Expression disjunction() {
    Expression left = conjunction();
    while (accept("or"))
      left = make([left, right = conjunction()](Frame& frame) {
        Value value = left(frame);
        return truth(value) ? value : right(frame);
      });
    return left;
  }

  Expression conjunction() {
    Expression left = negation();
    while (accept("and"))
      left = make([left, right = negation()](Frame& frame) {
        Value value = left(frame);
        return truth(value) ? right(frame) : value;
      });
    return left;
  }

  Expression negation() {
    const Level level(*this);
    if (!accept("not")) return comparison();
    return make([value = negation()](Frame& frame) -> Value { return !truth(value(frame)); });
  }

  // a < b < c: each of them, until one fails.
  Expression comparison() {
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
  std::string comparison_operator() {
    if (!at("not") || !at("in", 1)) return accept_any({"==", "!=", "<=", ">=", "<", ">", "in"});
    position_ += 2;
    return "not in";
  }

  Expression arithmetic(size_t tightness) {
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

  Expression unary(bool with_filters) {
    const Level level(*this);
    const std::string sign = accept_any({"-", "+"});
    Expression value = sign.empty() ? primary() : unary(false);
    if (!sign.empty()) value = make([sign, value](Frame& frame) { return binary(sign, 0, value(frame)); });
    value = postfix(std::move(value));
    return with_filters ? filtered(std::move(value)) : value;
  }

  Expression primary() {
    const Token first = token();
    ++position_;
    switch (first.kind) {
      case Kind::name:
        return name(first.text);
      case Kind::text:
        return constant(texts(first.text));
      case Kind::integer:
        return constant(number<int64_t>(first.text));
      case Kind::real:
        return constant(number<double>(first.text));
      default:
        break;
    }
    if (first.kind == Kind::symbol && first.text == "(")
      return accept(")") ? sequence(Sequence::Kind::tuple, {}) : in_parentheses();
    if (first.kind == Kind::symbol && first.text == "[") return sequence(Sequence::Kind::list, listed("]"));
    if (first.kind == Kind::symbol && first.text == "{") return dictionary();
    --position_;
    unexpected();
  }
  Expression in_parentheses() {
    Expression inside = tuple();
    expect(")");
    return inside;
  }

  Expression name(const std::string& name) {
    if (name == "true" || name == "True") return constant(true);
    if (name == "false" || name == "False") return constant(false);
    if (name == "none" || name == "None") return constant(None{});
    if (in_macro_ && (name == "varargs" || name == "kwargs" || name == "caller"))
      return make([name](Frame&) -> Value { throw TemplateError(name + " in a macro is not supported"); });
    return make([name](Frame& frame) -> Value {
      const Value* found = frame.scope->find(name);
      return found ? *found : Undefined{fmt::format("{} is undefined", name)};
    });
  }

  std::string texts(std::string text) {  // neighbours are one
    while (token().kind == Kind::text) text += take(Kind::text, "a text").text;
    return text;
  }

  template <typename Number>
  Number number(const std::string& text) const {
    Number value{};
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{})
      refuse(fmt::format("the number {} is too large", text));
    return value;
  }

  std::vector<Expression> listed(std::string_view end) {
    std::vector<Expression> items;
    while (!accept(end)) {
      if (!items.empty()) expect(",");
      if (accept(end)) break;
      items.push_back(expression());
    }
    return items;
  }

  Expression dictionary() {
    std::vector<std::pair<Expression, Expression>> entries;
    while (!accept("}")) {
      if (!entries.empty()) expect(",");
      if (accept("}")) break;
      Expression key = expression();
      expect(":");
      entries.emplace_back(std::move(key), expression());
    }
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

  Expression postfix(Expression value) {
    for (;;) {
      if (accept(".")) {
        value = member(std::move(value));
      } else if (accept("[")) {
        value = item(std::move(value));
      } else if (at("(")) {
        value = called(std::move(value));
      } else {
        return value;
      }
    }
  }

  Expression member(Expression value) {
    if (token().kind == Kind::integer) return make_subscript(std::move(value), primary());
    return make([value, name = take_name()](Frame& frame) { return attribute(value(frame), name); });
  }

  Expression make_subscript(Expression value, Expression key) {
    return make([=](Frame& frame) {
      const Value subject = value(frame);
      return subscript(subject, key(frame));
    });
  }

  Expression item(Expression value) {
    const auto bound = [&] { return at(":") || at("]") ? constant(None{}) : expression(); };
    Expression start = bound();
    if (accept("]")) return make_subscript(std::move(value), std::move(start));
    expect(":");
    Expression stop = bound();
    Expression step = accept(":") ? bound() : constant(None{});
    expect("]");
    return make([=](Frame& frame) {
      const Value subject = value(frame), first = start(frame), last = stop(frame);
      return frame.run.charged(slice(subject, first, last, step(frame)));
    });
  }

  Expression called(Expression callee) {
    return make([callee, call_site = arguments()](Frame& frame) {
      const Value function = callee(frame);
      Arguments values = call_site.arguments(frame);
      return call(function, values, frame);
    });
  }

  Call arguments() {
    Call call;
    if (!accept("(")) return call;
    for (bool is_first = true; !accept(")"); is_first = false) {
      if (!is_first) expect(",");
      if (!is_first && accept(")")) break;
      if (at("*") || at("**")) refuse("unpacked arguments are not supported");
      const bool is_named = token().kind == Kind::name && at("=", 1);
      std::string name = is_named ? take_name() : "";
      if (is_named)
        expect("=");
      else if (!call.named.empty())
        refuse("an argument without a name follows one with a name");
      if (is_named)
        call.named.emplace_back(std::move(name), expression());
      else
        call.positional.push_back(expression());
    }
    return call;
  }

  Expression filtered(Expression value) {
    for (;;) {
      if (accept("|")) {
        value = filter(std::move(value));
      } else if (accept("is")) {
        value = test(std::move(value));
      } else if (at("(")) {
        value = called(std::move(value));
      } else {
        return value;
      }
    }
  }

  Expression filter(Expression subject) {
    return make([name = take_name(), subject, call_site = arguments()](Frame& frame) {
      const Filter function = filter_named(name);
      const Value value = subject(frame);
      Arguments values = call_site.arguments(frame);
      Value result = function(value, values, frame);
      values.finish();
      return frame.run.charged(std::move(result));
    });
  }

  Expression test(Expression subject) {
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
  bool at_operand() const {
    const Kind kind = token().kind;
    if (kind == Kind::name) return !at("else") && !at("or") && !at("and") && !at("is") && !at("if");
    return kind == Kind::text || kind == Kind::integer || kind == Kind::real || at("[") || at("{");
  }

  // ---- statements

  Body body_until(const Names& ends) {
    Body body;
    for (; token().kind != Kind::end; made_in_tag_ = 0) {
      if (token().kind == Kind::begin_block) {
        ++position_;
        if (std::ranges::any_of(ends, [&](auto end) { return at(end); })) break;
        body.push_back(statement());
        take(Kind::end_block, "%}");
      } else {
        body.push_back(token().kind == Kind::data ? data() : output());
      }
    }
    return body;
  }

  // The body up to {% end %}, of which the name is taken.
  Body block(std::string_view end) {
    take(Kind::end_block, "%}");
    Body body = body_until({end});
    expect(end);
    return body;
  }

  Statement data() {
    return {line(), [text = take(Kind::data, "text").text](Frame& frame) {
              check_size(frame.output.size() + text.size());
              frame.run.charge(text.size());
              frame.output += text;
              return Flow::on;
            }};
  }

  Statement output() {
    take(Kind::begin_output, "{{");
    Statement shown{line(), [value = tuple()](Frame& frame) {
                      const std::string text = text_of(value(frame));
                      check_size(frame.output.size() + text.size());
                      frame.run.charge(text.size());
                      frame.output += text;
                      return Flow::on;
                    }};
    take(Kind::end_output, "}}");
    return shown;
  }

  Statement statement() {
    const Level level(*this);
    const int begin = line();
    const std::string keyword = take_name();
    if (keyword == "if") return {begin, condition()};
    if (keyword == "for") return {begin, loop()};
    if (keyword == "set") return {begin, assignment()};
    if (keyword == "macro") return {begin, macro()};
    if (keyword == "generation") return {begin, generation()};
    if (keyword == "break" || keyword == "continue") return {begin, jump(keyword)};
    --position_;
    refuse(fmt::format("the tag {} is not supported", keyword));
  }

  using Action = std::function<Flow(Frame&)>;

  Action condition() {
    const Level level(*this);
    Expression condition = expression();
    take(Kind::end_block, "%}");
    Body body = body_until({"elif", "else", "endif"}), otherwise;
    const int begin = line();
    if (accept("elif"))
      otherwise.push_back({begin, this->condition()});
    else if (accept("else"))
      otherwise = block("endif");
    else
      expect("endif");
    return [=](Frame& frame) { return run_body(truth(condition(frame)) ? body : otherwise, frame); };
  }

  Action loop() {
    Target target = this->target();
    expect("in");
    Expression items = tuple(&Parser::disjunction);
    std::optional<Expression> condition;
    if (accept("if")) condition = expression();
    if (at("recursive")) refuse("recursive loops are not supported");
    take(Kind::end_block, "%}");
    ++loops_;
    Body body = body_until({"else", "endfor"}), otherwise;
    --loops_;
    if (accept("else"))
      otherwise = block("endfor");
    else
      expect("endfor");
    const Loop loop{std::move(target), std::move(items), std::move(condition), std::move(body),
                    std::move(otherwise)};
    return [loop](Frame& frame) { return loop.run(frame); };
  }

  Target target() {
    std::vector<Target> parts;
    bool is_tuple = false;
    do {
      if (is_tuple && (at("in") || at("="))) break;
      parts.push_back(accept("(") ? nested_target() : named_target());
      is_tuple = is_tuple || at(",");
    } while (accept(","));
    if (!is_tuple) return parts[0];
    return [parts](Frame& frame, const Value& value) {
      const Items items = items_of(value);
      if (items.size() != parts.size())
        throw TemplateError(fmt::format("{} values for {} names", items.size(), parts.size()));
      for (size_t i = 0; i < parts.size(); ++i) parts[i](frame, items[i]);
    };
  }
  Target nested_target() {
    const Level level(*this);
    Target inside = target();
    expect(")");
    return inside;
  }
  Target named_target() {
    const std::string name = take_name();
    if (!accept(".")) return [name](Frame& frame, const Value& value) { frame.scope->names[name] = value; };
    return [name, attribute = take_name()](Frame& frame, const Value& value) {
      const Value* found = frame.scope->find(name);
      const auto* attributes = found ? found->as<Namespace>() : nullptr;
      if (!attributes)
        throw TemplateError(
            fmt::format("{} is not a namespace, so {}.{} cannot be set", name, name, attribute));
      assign(attributes->entries, attribute, value);
    };
  }

  Action assignment() {
    const Target target = this->target();
    if (accept("="))
      return [target, value = tuple()](Frame& frame) {
        target(frame, value(frame));
        return Flow::on;
      };
    // {% set name | filter %}...{% endset %}
    Expression text = make([](Frame& frame) -> Value { return frame.output; });
    while (accept("|")) text = filter(std::move(text));
    return [target, text, body = block("endset")](Frame& frame) {
      std::string output;
      Frame inside = frame.inner(output);
      run_body(body, inside);
      target(frame, text(inside));
      return Flow::on;
    };
  }

  Action macro() {
    Macro macro{take_name(), {}, {}};
    expect("(");
    while (!accept(")")) {
      if (!macro.parameters.empty()) expect(",");
      if (accept(")")) break;
      Parameter parameter{take_name(), {}};
      if (accept("=")) parameter.otherwise = expression();
      macro.parameters.push_back(std::move(parameter));
    }
    const bool was_in_macro = std::exchange(in_macro_, true);
    const int loops = std::exchange(loops_, 0);
    macro.body = block("endmacro");
    in_macro_ = was_in_macro;
    loops_ = loops;
    return [macro = std::make_shared<const Macro>(std::move(macro))](Frame& frame) {
      frame.scope->names[macro->name] = bind_macro(macro, frame.scope);
      return Flow::on;
    };
  }

  // Marks what the model wrote, for training; a scope of its own, otherwise without effect.
  Action generation() {
    return [body = block("endgeneration")](Frame& frame) {
      Frame inside = frame.inner();
      return run_body(body, inside);
    };
  }

  Action jump(const std::string& keyword) const {
    if (loops_ == 0) refuse(fmt::format("{} outside a loop", keyword));
    return [flow = keyword == "break" ? Flow::leave_loop : Flow::next_round](Frame&) { return flow; };
  }

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int levels_ = 0, loops_ = 0, made_in_tag_ = 0;
  bool in_macro_ = false;
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace maniple::jinja
