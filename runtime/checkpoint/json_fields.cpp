#include <runtime/checkpoint/json_fields.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

namespace maniple {

using nlohmann::json;

namespace {

// Refuses input before anything of it is stored: a pass of its own, since the library's parser with a callback looks at all
// members of an object whenever one of them ends. The parser itself needs no stack for nesting.
class Guard {
 public:
  Guard(std::string_view text, std::string_view where, size_t max_keys)
      : text_(text), where_(where), max_keys_(max_keys) {}

  bool start_object(size_t) { return open(); }
  bool start_array(size_t) { return open(); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second)
      fail(ExitCode::input, "{}: the key {} is given twice", where_, shown(json(name)));
    if (keys_.back().size() > max_keys_)
      fail(ExitCode::input, "{}: an object has more than {} fields", where_, max_keys_);
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) {
    fail(ExitCode::input, "{}: not valid JSON: {}", where_, json_flaw(text_, error));
  }
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(int64_t) { return true; }
  bool number_unsigned(uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(json::binary_t&) { return true; }

 private:
  static constexpr size_t max_depth = 64;

  bool open() {
    if (keys_.size() == max_depth)
      fail(ExitCode::input, "{}: nested deeper than {} levels", where_, max_depth);
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::string_view text_, where_;
  size_t max_keys_;                          // of one object
  std::vector<std::set<std::string>> keys_;  // of each open object or array
};

template <typename Json>
Json parse_guarded(std::string_view text, std::string_view where, size_t max_keys) {
  Guard guard(text, where, max_keys);
  Json::sax_parse(text, &guard);
  return Json::parse(text);
}

bool is_token_id(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
}

}  // namespace

json parse_json(std::string_view text, std::string_view where) {
  return parse_guarded<json>(text, where, std::numeric_limits<size_t>::max());
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where) {
  return parse_guarded<nlohmann::ordered_json>(text, where, 4096);
}

std::string json_flaw(std::string_view text, const json::exception& error) {
  const auto* syntax = dynamic_cast<const json::parse_error*>(&error);
  if (!syntax)
    return error.id == 406 ? "a number is beyond what 64-bit floating point holds"
                           : "a field is missing, or of another type than is read";
  const size_t at = std::min(std::max<size_t>(syntax->byte, 1) - 1, text.size());
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::ranges::count(before, '\n');
  const size_t column = at - (line == 1 ? 0 : before.rfind('\n') + 1) + 1;
  const std::string place =
      (line == 1 ? "" : fmt::format("line {}, ", line)) + fmt::format("column {}", column);
  const auto says = [what = std::string_view(error.what())](std::string_view part) {
    return what.find(part) != what.npos;
  };
  if (says("surrogate")) return place + ": half of a surrogate pair stands alone";
  if (says("UTF-8")) return place + ": bytes that are not UTF-8";
  if (at == text.size()) return place + ": it ends too early";
  return fmt::format(
      "{}: unexpected {}{}", place, shown(json(std::string(text.substr(at, 1)))),
      says("control character") ? "; in a text such a character is written with a backslash" : "");
}

std::string shown(const json& value) {
  constexpr size_t longest = 120;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > longest) text.replace(longest, text.npos, "...");
  return text;
}

JsonFields::JsonFields(const json& value, std::string_view where, std::string_view path)
    : object_(&value), where_(where), path_(path.empty() ? "" : fmt::format("{}.", path)) {
  if (!value.is_object())
    fail(ExitCode::input, "{}: {} is {}, not a JSON object", where_, path.empty() ? "the content" : path,
         shown(value));
}

const json* JsonFields::find(std::string_view name) const {
  const auto field = object_->find(name);
  return field == object_->end() || field->is_null() ? nullptr : &*field;
}

bool JsonFields::is_null(std::string_view name) const {
  const auto field = object_->find(name);
  return field != object_->end() && field->is_null();
}

const json& JsonFields::present(std::string_view name) const {
  const json* value = find(name);
  if (!value) fail(ExitCode::input, "{}: {}{} is missing", where_, path_, name);
  return *value;
}

void JsonFields::refuse(std::string_view name, std::string_view supported) const {
  const json* value = find(name);
  fail(ExitCode::input, "{}: {}{} is {}; supported: {}", where_, path_, name,
       value ? shown(*value) : "missing", supported);
}

int64_t JsonFields::integer(std::string_view name, int64_t smallest, int64_t largest) const {
  const json& value = present(name);
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(largest)) &&
      value.get<int64_t>() >= smallest && value.get<int64_t>() <= largest;
  if (!fits) refuse(name, fmt::format("a whole number from {} to {}", smallest, largest));
  return value.get<int64_t>();
}

int64_t JsonFields::integer_or(std::string_view name, int64_t fallback, int64_t smallest,
                               int64_t largest) const {
  return find(name) ? integer(name, smallest, largest) : fallback;
}

double JsonFields::number(std::string_view name, double smallest, double largest) const {
  const json& value = present(name);
  if (!value.is_number() || !(value.get<double>() >= smallest && value.get<double>() <= largest))
    refuse(name, fmt::format("a number from {} to {}", smallest, largest));
  return value.get<double>();
}

double JsonFields::number_or(std::string_view name, double fallback, double smallest, double largest) const {
  return find(name) ? number(name, smallest, largest) : fallback;
}

bool JsonFields::boolean_or(std::string_view name, bool fallback) const {
  const json* value = find(name);
  if (value && !value->is_boolean()) refuse(name, "true or false");
  return value ? value->get<bool>() : fallback;
}

std::string JsonFields::text(std::string_view name) const {
  const json& value = present(name);
  if (!value.is_string()) refuse(name, "a string");
  return value.get<std::string>();
}

std::string JsonFields::text_or(std::string_view name, std::string_view fallback) const {
  return find(name) ? text(name) : std::string(fallback);
}

std::vector<int64_t> JsonFields::sizes(std::string_view name) const {
  const json& values = present(name);
  const auto fits = [](const json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  };
  if (!values.is_array() || !std::ranges::all_of(values, fits))
    refuse(name, "a list of whole numbers from 0 to 2^63 - 1");
  return values.get<std::vector<int64_t>>();
}

std::vector<int32_t> JsonFields::token_ids(std::string_view name) const {
  const json* value = find(name);
  if (!value) return {};
  if (is_token_id(*value)) return {value->get<int32_t>()};
  std::vector<int32_t> ids;
  for (const json& id : value->is_array() ? *value : json::array({*value})) {
    if (!is_token_id(id)) refuse(name, "a token id or a list of token ids, from 0 to 2147483647");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

bool JsonFields::is_neutral(std::string_view name, std::optional<double> number) const {
  const json* value = find(name);
  if (!value || (value->is_structured() && value->empty())) return true;
  return number && value->is_number() && value->get<double>() == *number;
}

void JsonFields::allow_only(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : items())
    if (!value.is_null() && std::ranges::find(names, name) == names.end())
      refuse(name, fmt::format("{}", fmt::join(names, ", ")));
}

JsonFields JsonFields::object(std::string_view name) const {
  return {present(name), where_, fmt::format("{}{}", path_, name)};
}

}  // namespace maniple
