#include <kernels/support/counted.hpp>
#include <runtime/chat/expression_parser.hpp>

namespace maniple::jinja {
namespace {

using Kind = Token::Kind;
// Stores a value under the names of {% set %} or {% for %}.
using Target = std::function<void(Frame&, const Value&)>;

struct Parameter {
  std::string name;
  std::optional<Expression> otherwise;
};

struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  std::set<std::string, std::less<>> caught;  // of varargs, kwargs and caller: those in its body
};

// What a template can read of a macro, as in Jinja.
Entries attributes_of(const Macro& macro) {
  Items names;
  for (const Parameter& parameter : macro.parameters) names.emplace_back(parameter.name);
  return {{"name", macro.name},
          {"arguments", {Sequence::Kind::tuple, std::move(names)}},
          {"catch_kwargs", macro.caught.contains("kwargs")},
          {"catch_varargs", macro.caught.contains("varargs")},
          {"caller", macro.caught.contains("caller")}};
}

// A macro sees the scope of its definition as it is during the call. It does not own the
// scope, which owns it.
Value bind_macro(const std::shared_ptr<const Macro>& macro, const std::shared_ptr<Scope>& scope) {
  return Function{[macro, around = std::weak_ptr<Scope>(scope)](Arguments& arguments, Frame& frame) -> Value {
                    const std::shared_ptr<Scope> definition = around.lock();
                    if (!definition)
                      throw TemplateError(fmt::format(
                          "the macro {} is called outside the block that defines it", macro->name));
                    std::string output;
                    Frame inside = Frame{definition, output, frame.run}.inner();
                    for (const Parameter& parameter : macro->parameters) {
                      std::optional<Value> given = arguments.take(parameter.name);
                      if (!given && parameter.otherwise) given = (*parameter.otherwise)(inside);
                      inside.scope->names[parameter.name] = given.value_or(Undefined{fmt::format(
                          "the argument {} of macro {} is not given", parameter.name, macro->name)});
                    }
                    arguments.finish();
                    run_body(macro->body, inside);
                    return output;
                  },
                  attributes_of(*macro)};
}

constexpr size_t work_of_round = 1024;  // bytes of a scope and the loop variable with its twelve names

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

  // As in Jinja, {% else %} runs unless at least one round ran to its end, without break or continue.
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

// Parses text, {{ }} and {% %}.
class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Body run() {
    Body body = body_until({});
    if (token().kind != Kind::end) unexpected();
    return body;
  }

 private:
  Body body_until(const Names& ends) {
    Body body;
    for (; token().kind != Kind::end; begin_tag()) {
      if (token().kind == Kind::begin_block) {
        skip(1);
        if (std::ranges::any_of(ends, [&](auto end) { return at(end); })) break;
        body.push_back(statement());
        take(Kind::end_block, "%}");
      } else {
        body.push_back(token().kind == Kind::data ? data() : output());
      }
    }
    return body;
  }

  // Parses the body up to {% end %} and takes the name of this tag.
  Body block(std::string_view end) {
    take(Kind::end_block, "%}");
    Body body = body_until({end});
    expect(end);
    return body;
  }

  static Flow write(const std::string& text, Frame& frame) {
    check_size(frame.output.size() + text.size());
    frame.run.charge(text.size());
    frame.output += text;
    return Flow::on;
  }

  Statement data() {
    return {line(), [text = take(Kind::data, "text").text](Frame& frame) { return write(text, frame); }};
  }

  Statement output() {
    take(Kind::begin_output, "{{");
    Statement shown{line(), [value = tuple()](Frame& frame) { return write(text_of(value(frame)), frame); }};
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
    back();
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
        throw TemplateError(
            fmt::format("{} for {}", counted(items.size(), "value"), counted(parts.size(), "name")));
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
    while (accept("|")) text = filter(text);
    return [target, text, body = block("endset")](Frame& frame) {
      std::string output;
      Frame inside = frame.inner(output);
      run_body(body, inside);
      target(frame, text(inside));
      return Flow::on;
    };
  }

  Action macro() {
    Macro macro{take_name(), {}, {}, {}};
    expect("(");
    list(")", [&] {
      Parameter parameter{take_name(), {}};
      if (accept("=")) parameter.otherwise = expression();
      macro.parameters.push_back(std::move(parameter));
    });
    const bool was_in_macro = std::exchange(in_macro_, true);
    const int loops = std::exchange(loops_, 0);
    std::swap(macro.caught, caught_);
    macro.body = block("endmacro");
    std::swap(macro.caught, caught_);
    in_macro_ = was_in_macro;
    loops_ = loops;
    return [macro = std::make_shared<const Macro>(std::move(macro))](Frame& frame) {
      frame.scope->names[macro->name] = bind_macro(macro, frame.scope);
      return Flow::on;
    };
  }

  // Marks the model's own text, for training. Opens a scope; has no other effect.
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

  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace maniple::jinja
