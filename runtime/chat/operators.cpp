#include <runtime/chat/text.hpp>
#include <runtime/chat/value.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace maniple::jinja {
namespace {

[[noreturn]] void refuse_operands(std::string_view op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right})
    if (const auto* undefined = value->as<Undefined>()) throw TemplateError(undefined->reason);
  throw TemplateError(fmt::format("{} does not work between {} and {}", op, left.type(), right.type()));
}

int64_t floor_divide(int64_t left, int64_t right) {
  return left / right - (left % right != 0 && (left < 0) != (right < 0));
}

std::optional<int64_t> whole_result(std::string_view op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflows = false;
  if (op == "+") overflows = __builtin_add_overflow(left, right, &result);
  if (op == "-") overflows = __builtin_sub_overflow(left, right, &result);
  if (op == "*") overflows = __builtin_mul_overflow(left, right, &result);
  if (op == "//" || op == "%") {
    if (right == -1) return op == "%" ? 0 : whole_result("-", 0, left);
    result = op == "//" ? floor_divide(left, right) : left - right * floor_divide(left, right);
  }
  return overflows ? std::nullopt : std::optional(result);
}

double real_result(std::string_view op, double left, double right) {
  if (op == "+") return left + right;
  if (op == "-") return left - right;
  if (op == "*") return left * right;
  if (op == "/") return left / right;
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) rest += right;
  if (op == "%") return rest == 0 ? std::copysign(0.0, right) : rest;
  return std::round((left - rest) / right);
}

Value number_result(std::string_view op, const Value& left, const Value& right) {
  if (right.real() == 0 && (op == "/" || op == "//" || op == "%")) throw TemplateError("division by zero");
  const auto x = left.whole(), y = right.whole();
  if (!x || !y || op == "/") return real_result(op, *left.real(), *right.real());
  if (const auto result = whole_result(op, *x, *y)) return *result;
  throw TemplateError(fmt::format("{} {} {} is beyond 64 bits", *x, op, *y));
}

size_t repetitions(size_t size, int64_t count) {
  if (count <= 0) return 0;
  size_t total = 0;
  if (__builtin_mul_overflow(size, static_cast<size_t>(count), &total)) total = SIZE_MAX;
  check_size(total);
  return static_cast<size_t>(count);
}

std::optional<Value> repeated(const Value& value, const Value& count) {
  const auto times = count.whole();
  if (!times) return std::nullopt;
  if (const auto* text = value.as<std::string>()) {
    const size_t bytes = text->size() * repetitions(text->size(), *times);
    std::string result = bytes > 0 ? *text : "";
    while (result.size() < bytes) result.append(result, 0, bytes - result.size());
    return result;
  }
  const auto* sequence = value.as<Sequence>();
  if (!sequence || sequence->kind > Sequence::Kind::tuple) return std::nullopt;
  Items items;
  for (size_t i = repetitions(sequence->items.size() * sizeof(Value), *times);
       i > 0 && !sequence->items.empty(); --i)
    items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  return Value(sequence->kind, std::move(items));
}

std::optional<Value> joined(const Value& left, const Value& right) {
  const auto *first = left.as<std::string>(), *second = right.as<std::string>();
  if (first && second) return *first + *second;
  const auto *head = left.as<Sequence>(), *tail = right.as<Sequence>();
  if (!head || !tail || head->kind != tail->kind || head->kind > Sequence::Kind::tuple) return std::nullopt;
  Items items = head->items;
  items.insert(items.end(), tail->items.begin(), tail->items.end());
  return Value(head->kind, std::move(items));
}

bool same_entries(const Entries& left, const Entries& right) {
  return left.size() == right.size() && std::ranges::all_of(left, [&](const auto& entry) {
           const Value* other = find(right, entry.first);
           return other && equal(entry.second, *other);
         });
}

}  // namespace

Value binary(std::string_view op, const Value& left, const Value& right) {
  if (op == "~") return text_of(left) + text_of(right);
  if (left.real() && right.real()) return number_result(op, left, right);
  if (const auto* text = left.as<std::string>(); text && op == "%") return percent_format(*text, right);
  std::optional<Value> result;
  if (op == "+") result = joined(left, right);
  if (op == "*") result = left.whole() ? repeated(right, left) : repeated(left, right);
  if (!result) refuse_operands(op, left, right);
  return *result;
}

bool equal(const Value& left, const Value& right) {
  if (left.whole() && right.whole()) return left.whole() == right.whole();
  if (left.real() && right.real()) return left.real() == right.real();
  if (left.type() != right.type()) return false;
  if (const auto* text = left.as<std::string>()) return *text == *right.as<std::string>();
  if (const auto* dict = left.as<Dict>()) return same_entries(dict->entries, right.as<Dict>()->entries);
  if (const auto* sequence = left.as<Sequence>())
    return std::ranges::equal(sequence->items, right.as<Sequence>()->items, equal);
  if (const auto* attributes = left.as<Namespace>()) return attributes == right.as<Namespace>();
  return left.as<Function>() == right.as<Function>();  // None, undefined: null on both sides
}

bool less(const Value& left, const Value& right) {
  if (left.real() && right.real())
    return left.whole() && right.whole() ? left.whole() < right.whole() : left.real() < right.real();
  const auto *first = left.as<std::string>(), *second = right.as<std::string>();
  if (first && second) return *first < *second;
  const auto *a = left.as<Sequence>(), *b = right.as<Sequence>();
  if (!a || !b || a->kind != b->kind || a->kind > Sequence::Kind::tuple) refuse_operands("<", left, right);
  const auto [x, y] = std::ranges::mismatch(a->items, b->items, equal);
  return y != b->items.end() && (x == a->items.end() || less(*x, *y));
}

bool contains(const Value& container, const Value& item) {
  if (const auto* text = container.as<std::string>()) {
    const auto* part = item.as<std::string>();
    if (!part) refuse_operands("in", item, container);
    return text->find(*part) != text->npos;
  }
  const auto is_item = [&](const Value& other) { return equal(other, item); };
  const auto* sequence = container.as<Sequence>();
  if (!sequence || sequence->kind != Sequence::Kind::iterator)
    return std::ranges::any_of(items_of(container), is_item);
  while (sequence->taken < sequence->items.size())
    if (is_item(sequence->items[sequence->taken++])) return true;
  return false;
}

namespace {

// The index from the front; absent if it is out of range.
std::optional<size_t> position(int64_t index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  return index >= 0 && index < static_cast<int64_t>(size) ? std::optional<size_t>(index) : std::nullopt;
}

std::optional<Value> item_at(const Value& value, int64_t index) {
  if (const auto* text = value.as<std::string>()) {
    const std::u32string characters = code_points(*text);
    const auto at = position(index, characters.size());
    return at ? std::optional<Value>(utf8({&characters[*at], 1})) : std::nullopt;
  }
  const auto* sequence = value.as<Sequence>();
  if (!sequence || sequence->kind > Sequence::Kind::range) return std::nullopt;
  const auto at = position(index, sequence->items.size());
  return at ? std::optional(sequence->items[*at]) : std::nullopt;
}

// Python's slice.indices(): the positions that a slice takes.
std::vector<size_t> positions(const Value& start, const Value& stop, const Value& step, size_t count) {
  const auto number = [](const Value& value, int64_t otherwise) {
    if (value.is<None>()) return otherwise;
    if (!value.whole()) throw TemplateError("slice indices must be integers");
    return *value.whole();
  };
  const auto size = static_cast<int64_t>(count);
  const int64_t stride = number(step, 1);
  if (stride == 0) throw TemplateError("slice step cannot be zero");
  const int64_t lowest = stride > 0 ? 0 : -1, highest = stride > 0 ? size : size - 1;
  const auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is<None>()) return otherwise;
    const int64_t index = number(value, 0);
    return std::clamp(index < 0 ? index + size : index, lowest, highest);
  };
  std::vector<size_t> taken;
  int64_t at = bound(start, stride > 0 ? lowest : highest);
  const int64_t end = bound(stop, stride > 0 ? highest : lowest);
  for (; stride > 0 ? at < end : at > end; at += std::clamp(stride, -size, size))
    taken.push_back(static_cast<size_t>(at));
  return taken;
}

}  // namespace

Value subscript(const Value& value, const Value& key) {
  if (const auto* undefined = value.as<Undefined>()) throw TemplateError(undefined->reason);
  const auto* name = key.as<std::string>();
  if (const auto* dict = value.as<Dict>(); dict && name)
    if (const Value* found = find(dict->entries, *name)) return *found;
  if (name) return attribute(value, *name);
  if (const auto index = key.whole())
    if (const auto item = item_at(value, *index)) return *item;
  return Undefined{fmt::format("{} has no item {}", value.type(), text_of(key))};
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (const auto* undefined = value.as<Undefined>()) throw TemplateError(undefined->reason);
  if (const auto* text = value.as<std::string>()) {
    const std::u32string characters = code_points(*text);
    std::u32string taken;
    for (const size_t at : positions(start, stop, step, characters.size())) taken += characters[at];
    return utf8(taken);
  }
  const auto* sequence = value.as<Sequence>();
  if (!sequence || sequence->kind > Sequence::Kind::range)
    throw TemplateError(fmt::format("a value of type {} cannot be sliced", value.type()));
  Items taken;
  for (const size_t at : positions(start, stop, step, sequence->items.size()))
    taken.push_back(sequence->items[at]);
  return {sequence->kind, std::move(taken)};
}

Value attribute_path(Value value, const Value& path) {
  const auto* names = path.as<std::string>();
  if (!names) return subscript(value, path);
  for (const std::string& name : split(*names, ".", -1)) {
    const bool is_index =
        !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    value = subscript(value, is_index ? Value(std::stoll(name.substr(0, 18))) : Value(name));
  }
  return value;
}

}  // namespace maniple::jinja
