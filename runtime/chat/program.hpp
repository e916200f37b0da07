// A template ready to run: the parser has turned each expression and statement into a function. A run counts
// its work: no template can run for ever, fill the memory or overflow the stack.
#pragma once

#include <runtime/chat/value.hpp>

#include <map>

namespace maniple::jinja {

// One rendering.
class Run {
 public:
  // Called around every expression and statement: pass the result of enter(line) to leave().
  int enter(int line);
  void leave(int line_before);
  void charge(size_t bytes);  // throws when the work of a rendering is used up
  Value charged(Value value);

  int line() const { return line_; }  // of the node that runs or failed
  std::shared_ptr<const Namespace> make_namespace(Entries entries);
  ~Run();

 private:
  int line_ = 1, depth_ = 0;
  size_t work_ = 0;
  std::vector<std::shared_ptr<const Namespace>> namespaces_;  // the run ends them: they may hold each other
};

// Names are looked up from the inside out and set in the innermost scope.
struct Scope {
  std::shared_ptr<const Scope> parent;
  std::map<std::string, Value, std::less<>> names;

  const Value* find(std::string_view name) const;
};

struct Frame {
  std::shared_ptr<Scope> scope;
  std::string& output;
  Run& run;

  Frame inner(std::string& to) const { return {std::make_shared<Scope>(Scope{scope, {}}), to, run}; }
  Frame inner() const { return inner(output); }
};

template <typename Result>
class Node {
 public:
  Node(int line, std::function<Result(Frame&)> action)
      : line_(line), action_(std::make_shared<const std::function<Result(Frame&)>>(std::move(action))) {}

  Result operator()(Frame& frame) const {
    const int line_before = frame.run.enter(line_);
    Result result = (*action_)(frame);
    frame.run.leave(line_before);
    return result;
  }

 private:
  int line_;
  std::shared_ptr<const std::function<Result(Frame&)>> action_;  // copies share it
};

enum class Flow { on, next_round, leave_loop };
using Expression = Node<Value>;
using Statement = Node<Flow>;
using Body = std::vector<Statement>;

Flow run_body(const Body& body, Frame& frame);

// Throws Error (input), naming the line, on a text that is not Jinja or not supported.
Body parse(std::string_view source);

// The arguments of one call. take() removes the next one in order, else the one of this name; need() throws
// if there is none; finish() refuses the rest.
class Arguments {
 public:
  Items positional;
  Entries named;

  std::optional<Value> take(std::string_view name);
  Value need(std::string_view name);
  Value take_or(std::string_view name, Value otherwise);
  void finish() const;

 private:
  size_t next_ = 0;
};

using Filter = Value (*)(const Value&, Arguments&, Frame&);
using Test = bool (*)(const Value&, Arguments&);
// Both throw for an unknown name; a branch that does not run may hold one, as in Jinja.
Filter filter_named(std::string_view name);
Test test_named(std::string_view name);
Value call(const Value& callee, Arguments& arguments, Frame& frame);
Items pairs_of(const Entries& entries);  // tuples of key and value

// The global functions of every template: range, dict, namespace, raise_exception, strftime_now.
std::map<std::string, Value, std::less<>> globals(int64_t now);

}  // namespace maniple::jinja
