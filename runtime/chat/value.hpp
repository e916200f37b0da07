// The values of a template and Python's operations on them: truth, equality, order, printing. Values cannot
// change, as in the sandbox of transformers, and are cheap to copy; only a namespace takes new attributes.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace maniple::jinja {

// An error while rendering; the interpreter adds the line.
struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Value;
class Arguments;
struct Frame;
using Items = std::vector<Value>;
using Entries = std::vector<std::pair<std::string, Value>>;

struct Undefined {
  std::string reason;  // for the error when it is used as a value
};
struct None {};
struct Sequence {
  // view: of a dictionary, without indices; iterator: gives each item once
  enum class Kind { list, tuple, range, view, iterator };
  Kind kind;
  Items items;
  int depth;
  mutable size_t taken = 0;  // of an iterator's items
};
struct Dict {
  Entries entries;
  int depth;
};
struct Namespace {
  mutable Entries entries;
};
struct Function {
  using Call = std::function<Value(Arguments&, Frame&)>;
  Function(Call called);
  Function(Call called, Entries named);
  Call call;
  Entries attributes;  // of a macro
};

class Value {
 public:
  Value() = default;  // undefined
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(None none) : data_(none) {}
  Value(std::same_as<bool> auto truth) : data_(truth) {}
  Value(std::same_as<double> auto number) : data_(number) {}
  Value(std::integral auto number) requires(!std::same_as<decltype(number), bool>)
      : data_(static_cast<int64_t>(number)) {}
  Value(std::string text);  // throws above the size limit of a value, as do the next two
  Value(Sequence::Kind kind, Items items);
  Value(Entries entries);  // a dictionary; each key once
  Value(std::shared_ptr<const Namespace> attributes) : data_(std::move(attributes)) {}
  Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}
  static Value from_json(const nlohmann::ordered_json& json);

  // as<std::string>(): the content if it has this type, else null.
  template <typename T>
  const T* as() const {
    if constexpr (std::is_arithmetic_v<T> || std::same_as<T, Undefined> || std::same_as<T, None>) {
      return std::get_if<T>(&data_);
    } else {
      const auto* shared = std::get_if<std::shared_ptr<const T>>(&data_);
      return shared ? shared->get() : nullptr;
    }
  }
  template <typename T>
  bool is() const {
    return as<T>() != nullptr;
  }
  std::optional<int64_t> whole() const;  // of an integer or a bool
  std::optional<double> real() const;    // of any number
  int depth() const;                     // of nested lists and dictionaries
  std::string type() const;              // Python's name of the type

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<const Namespace>,
               std::shared_ptr<const Function>>
      data_;
};

Value list_of(Items items);
void check_size(size_t bytes);  // throws above the limit of one text or list

const Value* find(const Entries& entries, std::string_view key);
void assign(Entries& entries, std::string key, Value value);

bool truth(const Value& value);
size_t length(const Value& value);
Items items_of(const Value& value);  // takes the rest of an iterator
std::string text_of(const Value& value);
std::string repr_of(const Value& value);

struct JsonStyle {
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool ascii = false, sorted = false;
};
std::string json_of(const Value& value, const JsonStyle& style);  // as Python's json.dumps

bool equal(const Value& left, const Value& right);
bool less(const Value& left, const Value& right);
bool contains(const Value& container, const Value& item);
// op: + - * / // % or ~
Value binary(std::string_view op, const Value& left, const Value& right);
// text % values: a tuple's in order, a dictionary's by name, or one value.
std::string percent_format(std::string_view text, const Value& values);

Value attribute(const Value& value, const std::string& name);  // value.name: a method comes before a key
Value subscript(const Value& value, const Value& key);         // value[key]: a key comes before a method
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step);
// "function.name" is an attribute of an attribute, a number an index.
Value attribute_path(Value value, const Value& path);

}  // namespace maniple::jinja
