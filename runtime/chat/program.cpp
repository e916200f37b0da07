#include <runtime/chat/program.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple::jinja {
namespace {

constexpr int max_depth = 1000;               // of nested expressions and statements
constexpr size_t max_work = size_t{1} << 30;  // bytes
constexpr size_t work_of_node = 64;           // bytes

}  // namespace

int Run::enter(int line) {
  if (++depth_ > max_depth) throw TemplateError(fmt::format("nested deeper than {} levels", max_depth));
  charge(work_of_node);
  return std::exchange(line_, line);
}

void Run::leave(int line_before) {
  --depth_;
  line_ = line_before;
}

void Run::charge(size_t bytes) {
  work_ += bytes;
  if (work_ > max_work) throw TemplateError("the template takes too much work for one prompt");
}

Value Run::charged(Value value) {
  if (const auto* text = value.as<std::string>()) charge(text->size());
  if (const auto* sequence = value.as<Sequence>()) charge(sequence->items.size() * sizeof(Value));
  return value;
}

std::shared_ptr<const Namespace> Run::make_namespace(Entries entries) {
  return namespaces_.emplace_back(std::make_shared<const Namespace>(Namespace{std::move(entries)}));
}

Run::~Run() {
  for (const auto& each : namespaces_) each->entries.clear();
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent.get())
    if (const auto found = scope->names.find(name); found != scope->names.end()) return &found->second;
  return nullptr;
}

Flow run_body(const Body& body, Frame& frame) {
  for (const Statement& statement : body)
    if (const Flow flow = statement(frame); flow != Flow::on) return flow;
  return Flow::on;
}

std::optional<Value> Arguments::take(std::string_view name) {
  if (next_ < positional.size()) return positional[next_++];
  const auto found = std::ranges::find(named, name, &Entries::value_type::first);
  if (found == named.end()) return std::nullopt;
  std::optional<Value> value = std::move(found->second);
  named.erase(found);
  return value;
}

Value Arguments::need(std::string_view name) {
  if (auto value = take(name)) return *value;
  throw TemplateError(fmt::format("the argument {} is missing", name));
}

Value Arguments::take_or(std::string_view name, Value otherwise) {
  return take(name).value_or(std::move(otherwise));
}

void Arguments::finish() const {
  if (!named.empty()) throw TemplateError(fmt::format("unexpected argument {}", named[0].first));
  if (next_ < positional.size())
    throw TemplateError(fmt::format("{} arguments where at most {} are taken", positional.size(), next_));
}

Items pairs_of(const Entries& entries) {
  Items pairs;
  for (const auto& [key, value] : entries) pairs.emplace_back(Sequence::Kind::tuple, Items{key, value});
  return pairs;
}

Value call(const Value& callee, Arguments& arguments, Frame& frame) {
  if (const auto* undefined = callee.as<Undefined>()) throw TemplateError(undefined->reason);
  const auto* function = callee.as<Function>();
  if (!function) throw TemplateError(fmt::format("a value of type {} cannot be called", callee.type()));
  Value result = function->call(arguments, frame);
  arguments.finish();
  return frame.run.charged(std::move(result));
}

}  // namespace maniple::jinja
