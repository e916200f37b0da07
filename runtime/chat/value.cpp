#include <runtime/chat/text.hpp>
#include <runtime/chat/value.hpp>
#include <runtime/text/utf8.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace maniple::jinja {
namespace {

constexpr size_t max_size = size_t{1} << 26;  // bytes of a text or list
constexpr int max_nesting = 200;              // of nested values, for the recursions over them

int checked_depth(int depth) {
  if (depth > max_nesting)
    throw TemplateError(fmt::format("values nested deeper than {} levels", max_nesting));
  return depth;
}

}  // namespace

void check_size(size_t size) {
  if (size > max_size) throw TemplateError(fmt::format("a value of {} bytes; at most {}", size, max_size));
}

Value list_of(Items items) { return {Sequence::Kind::list, std::move(items)}; }

Value::Value(std::string text) {
  check_size(text.size());
  data_ = std::make_shared<const std::string>(std::move(text));
}

Value::Value(Sequence::Kind kind, Items items) {
  check_size(items.size() * sizeof(Value));
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  data_ = std::make_shared<const Sequence>(Sequence{kind, std::move(items), checked_depth(depth + 1)});
}

Function::Function(Call called) : call(std::move(called)) {}
Function::Function(Call called, Entries named) : call(std::move(called)), attributes(std::move(named)) {}

Value::Value(Entries entries) {
  int depth = 0;
  for (const auto& [key, value] : entries) depth = std::max(depth, value.depth());
  data_ = std::make_shared<const Dict>(Dict{std::move(entries), checked_depth(depth + 1)});
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)
    throw TemplateError(fmt::format("the number {} is larger than 2^63 - 1", json.get<uint64_t>()));
  if (json.is_number()) return json.get<int64_t>();
  if (json.is_array()) {
    Items items;
    for (const auto& item : json) items.push_back(from_json(item));
    return list_of(std::move(items));
  }
  Entries entries;
  for (const auto& [key, value] : json.items()) entries.emplace_back(key, from_json(value));
  return entries;
}

std::optional<int64_t> Value::whole() const {
  if (const bool* truth = as<bool>()) return *truth;
  if (const int64_t* number = as<int64_t>()) return *number;
  return std::nullopt;
}

std::optional<double> Value::real() const {
  if (const double* number = as<double>()) return *number;
  return whole();
}

int Value::depth() const {
  if (const Sequence* sequence = as<Sequence>()) return sequence->depth;
  if (const Dict* dict = as<Dict>()) return dict->depth;
  return 0;
}

std::string Value::type() const {
  constexpr std::string_view names[] = {"Undefined", "NoneType", "bool", "int",       "float",
                                        "str",       "list",     "dict", "Namespace", "function"};
  constexpr std::string_view sequences[] = {"list", "tuple", "range", "dictionary view", "iterator"};
  const Sequence* sequence = as<Sequence>();
  return std::string(sequence ? sequences[static_cast<int>(sequence->kind)] : names[data_.index()]);
}

const Value* find(const Entries& entries, std::string_view key) {
  const auto found = std::ranges::find(entries, key, &Entries::value_type::first);
  return found == entries.end() ? nullptr : &found->second;
}

void assign(Entries& entries, std::string key, Value value) {
  const auto found = std::ranges::find(entries, key, &Entries::value_type::first);
  if (found == entries.end())
    entries.emplace_back(std::move(key), std::move(value));
  else
    found->second = std::move(value);
}

bool truth(const Value& value) {
  if (value.is<Undefined>() || value.is<None>()) return false;
  if (const auto number = value.real()) return *number != 0;
  if (const auto* text = value.as<std::string>()) return !text->empty();
  if (const auto* dict = value.as<Dict>()) return !dict->entries.empty();
  const auto* sequence = value.as<Sequence>();
  return !sequence || sequence->kind == Sequence::Kind::iterator || !sequence->items.empty();
}

size_t length(const Value& value) {
  if (value.is<Undefined>()) return 0;
  if (const auto* text = value.as<std::string>()) return character_count(*text);
  if (const auto* dict = value.as<Dict>()) return dict->entries.size();
  const auto* sequence = value.as<Sequence>();
  if (sequence && sequence->kind != Sequence::Kind::iterator) return sequence->items.size();
  throw TemplateError(fmt::format("a value of type {} has no length", value.type()));
}

Items items_of(const Value& value) {
  Items items;
  if (const auto* sequence = value.as<Sequence>()) {
    items.assign(sequence->items.begin() + static_cast<ptrdiff_t>(sequence->taken), sequence->items.end());
    if (sequence->kind == Sequence::Kind::iterator) sequence->taken = sequence->items.size();
  } else if (const auto* dict = value.as<Dict>()) {
    for (const auto& entry : dict->entries) items.emplace_back(entry.first);
  } else if (const auto* text = value.as<std::string>()) {
    for (const char32_t character : code_points(*text)) items.emplace_back(utf8({&character, 1}));
  } else if (!value.is<Undefined>()) {
    throw TemplateError(fmt::format("a value of type {} cannot be iterated over", value.type()));
  }
  return items;
}

std::string text_of(const Value& value) {
  if (value.is<Undefined>()) return "";
  const auto* text = value.as<std::string>();
  return text ? *text : repr_of(value);
}

std::string repr_of(const Value& value) {
  if (value.is<Undefined>()) return "Undefined";
  if (value.is<None>()) return "None";
  if (const bool* truth = value.as<bool>()) return *truth ? "True" : "False";
  if (const auto* number = value.as<int64_t>()) return fmt::format("{}", *number);
  if (const auto* number = value.as<double>()) return float_text(*number);
  if (const auto* text = value.as<std::string>()) return python_quoted(*text);
  std::vector<std::string> parts;
  if (const auto* dict = value.as<Dict>()) {
    for (const auto& [key, entry] : dict->entries)
      parts.push_back(fmt::format("{}: {}", python_quoted(key), repr_of(entry)));
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  const auto* sequence = value.as<Sequence>();
  if (!sequence || sequence->kind > Sequence::Kind::tuple)
    throw TemplateError(fmt::format("a value of type {} cannot be printed", value.type()));
  for (const Value& item : sequence->items) parts.push_back(repr_of(item));
  if (sequence->kind == Sequence::Kind::list) return fmt::format("[{}]", fmt::join(parts, ", "));
  return fmt::format("({}{})", fmt::join(parts, ", "), parts.size() == 1 ? "," : "");
}

namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int level) {
    const auto* sequence = value.as<Sequence>();
    if (value.is<None>()) {
      text += "null";
    } else if (const bool* truth = value.as<bool>()) {
      text += *truth ? "true" : "false";
    } else if (const auto* string = value.as<std::string>()) {
      text += json_quoted(*string, style_.ascii);
    } else if (const auto* number = value.as<double>()) {
      text += std::isnan(*number)   ? "NaN"
              : std::isinf(*number) ? (*number > 0 ? "Infinity" : "-Infinity")
                                    : float_text(*number);
    } else if (value.is<int64_t>()) {
      text += repr_of(value);
    } else if (const auto* dict = value.as<Dict>()) {
      write_dict(dict->entries, level);
    } else if (sequence && sequence->kind <= Sequence::Kind::tuple) {
      write_list(sequence->items, "[]", level, [&](const Value& item) { write(item, level + 1); });
    } else {
      throw TemplateError(fmt::format("a value of type {} has no form in JSON", value.type()));
    }
    check_size(text.size());
  }

  std::string text;

 private:
  void write_dict(Entries entries, int level) {
    if (style_.sorted) std::ranges::stable_sort(entries, {}, &Entries::value_type::first);
    write_list(entries, "{}", level, [&](const Entries::value_type& entry) {
      text += json_quoted(entry.first, style_.ascii) + style_.key_separator;
      write(entry.second, level + 1);
    });
  }

  template <typename List, typename Write>
  void write_list(const List& list, std::string_view brackets, int level, Write write_item) {
    text += brackets[0];
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) text += style_.item_separator;
      new_line(level + 1);
      write_item(list[i]);
    }
    if (!list.empty()) new_line(level);
    text += brackets[1];
  }

  void new_line(int level) {
    if (!style_.indent) return;
    text += '\n';
    for (int i = 0; i < level; ++i) text += *style_.indent;
  }

  const JsonStyle& style_;
};

}  // namespace

std::string json_of(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return std::move(writer.text);
}

}  // namespace maniple::jinja
