#include <runtime/chat/program.hpp>
#include <runtime/chat/text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace maniple::jinja {
namespace {

// The items for select, reject and map: none if the value is false or None.
Items items_if_true(const Value& value) { return truth(value) ? items_of(value) : Items{}; }

Value iterator_of(Items items) { return {Sequence::Kind::iterator, std::move(items)}; }

int64_t need_whole(const Value& value, std::string_view what) {
  if (const auto number = value.whole()) return *number;
  throw TemplateError(fmt::format("{} must be an integer, not {}", what, value.type()));
}

// Texts are ordered without regard to case, unless case_sensitive.
Value sort_key(const Value& value, bool case_sensitive) {
  const auto* text = value.as<std::string>();
  return text && !case_sensitive ? Value(lower(*text)) : value;
}

struct Keyed {
  Value key, item;
};

std::vector<Keyed> keyed(const Items& items, const Value& attribute, bool case_sensitive) {
  std::vector<Keyed> result;
  for (const Value& item : items)
    result.push_back(
        {sort_key(attribute.is<None>() ? item : attribute_path(item, attribute), case_sensitive), item});
  return result;
}

Value sort(const Value& value, Arguments& arguments, Frame&) {
  const bool reverse = truth(arguments.take_or("reverse", false));
  const bool case_sensitive = truth(arguments.take_or("case_sensitive", false));
  std::vector<Keyed> all = keyed(items_of(value), arguments.take_or("attribute", None{}), case_sensitive);
  // Comparing may throw. A reversed sort keeps equal items in their order, as in Python.
  std::ranges::stable_sort(
      all, [&](const Value& a, const Value& b) { return reverse ? less(b, a) : less(a, b); }, &Keyed::key);
  Items items;
  for (Keyed& each : all) items.push_back(std::move(each.item));
  return list_of(std::move(items));
}

// min and max: the first of the items that are equally small or large.
Value extreme(const Value& value, Arguments& arguments, bool largest) {
  const bool case_sensitive = truth(arguments.take_or("case_sensitive", false));
  const std::vector<Keyed> all =
      keyed(items_of(value), arguments.take_or("attribute", None{}), case_sensitive);
  if (all.empty()) return Undefined{"no smallest or largest item, the sequence was empty"};
  return (largest ? std::ranges::max_element(all, less, &Keyed::key)
                  : std::ranges::min_element(all, less, &Keyed::key))
      ->item;
}

Value dictsort(const Value& value, Arguments& arguments, Frame& frame) {
  const auto* dict = value.as<Dict>();
  if (!dict) throw TemplateError(fmt::format("dictsort of a value of type {}", value.type()));
  Arguments sorting;
  const Value case_sensitive = arguments.take_or("case_sensitive", false);
  const std::optional<Value> by = arguments.take("by");
  sorting.positional = {arguments.take_or("reverse", false), case_sensitive,
                        by && text_of(*by) == "value" ? 1 : 0};
  return sort(list_of(pairs_of(dict->entries)), sorting, frame);
}

Value join(const Value& value, Arguments& arguments, Frame&) {
  const std::string separator = text_of(arguments.take_or("d", std::string()));
  const Value attribute = arguments.take_or("attribute", None{});
  std::string text;
  bool is_first = true;
  for (const Value& item : items_of(value)) {
    if (!std::exchange(is_first, false)) text += separator;
    text += text_of(attribute.is<None>() ? item : attribute_path(item, attribute));
    check_size(text.size());
  }
  return text;
}

Value map(const Value& value, Arguments& arguments, Frame& frame) {
  Items items;
  if (arguments.positional.empty()) {
    const Value attribute = arguments.need("attribute"),
                otherwise = arguments.take_or("default", Undefined{});
    for (const Value& item : items_if_true(value)) {
      const Value found = attribute_path(item, attribute);
      items.push_back(found.is<Undefined>() && !otherwise.is<Undefined>() ? otherwise : found);
    }
  } else {
    const Filter filter = filter_named(text_of(arguments.need("filter")));
    const Arguments given = std::exchange(arguments, {});
    for (const Value& item : items_if_true(value)) {
      Arguments each = given;
      items.push_back(filter(item, each, frame));
      each.finish();
    }
  }
  return iterator_of(std::move(items));
}

// select, reject, selectattr and rejectattr: the items that pass, or fail, a test of them or an attribute.
Value chosen(const Value& value, Arguments& arguments, bool by_attribute, bool wanted) {
  const Value attribute = by_attribute ? arguments.need("attribute") : None{};
  const std::optional<Value> name = arguments.take("test");
  const Test test = name ? test_named(text_of(*name)) : nullptr;
  const Arguments given = std::exchange(arguments, {});
  Items items;
  for (const Value& item : items_if_true(value)) {
    Arguments each = given;
    const Value subject = by_attribute ? attribute_path(item, attribute) : item;
    if ((test ? test(subject, each) : truth(subject)) == wanted) items.push_back(item);
    each.finish();
  }
  return iterator_of(std::move(items));
}

Value reverse(const Value& value, Arguments&, Frame&) {
  if (const auto* text = value.as<std::string>()) {
    std::u32string characters = code_points(*text);
    std::ranges::reverse(characters);
    return utf8(characters);
  }
  Items items = items_of(value);
  std::ranges::reverse(items);
  return iterator_of(std::move(items));
}

Value first(const Value& value, Arguments&, Frame&) {
  const auto* sequence = value.as<Sequence>();
  if (sequence && sequence->kind == Sequence::Kind::iterator && sequence->taken < sequence->items.size())
    return sequence->items[sequence->taken++];
  const Items items = items_of(value);
  return items.empty() ? Undefined{"no first item, the sequence was empty"} : items.front();
}

Value last(const Value& value, Arguments&, Frame&) {
  const auto* sequence = value.as<Sequence>();
  if (sequence && sequence->kind == Sequence::Kind::iterator)
    throw TemplateError("an iterator has no last item");
  const Items items = items_of(value);
  return items.empty() ? Undefined{"no last item, the sequence was empty"} : items.back();
}

Value items(const Value& value, Arguments&, Frame&) {
  const auto* dict = value.as<Dict>();
  if (!dict && !value.is<Undefined>()) throw TemplateError("the filter items works on dictionaries alone");
  return iterator_of(dict ? pairs_of(dict->entries) : Items{});
}

Value default_to(const Value& value, Arguments& arguments, Frame&) {
  Value otherwise = arguments.take_or("default_value", std::string());
  const bool also_false = truth(arguments.take_or("boolean", false));
  return value.is<Undefined>() || (also_false && !truth(value)) ? otherwise : value;
}

// The width of an indent: a text, or a number of spaces.
std::string indention_of(const Value& width) {
  return width.is<std::string>() ? text_of(width) : text_of(binary("*", std::string(1, ' '), width));
}

Value indent(const Value& value, Arguments& arguments, Frame&) {
  const auto* text = value.as<std::string>();
  if (!text)
    throw TemplateError(fmt::format("indent works on texts, not on a value of type {}", value.type()));
  const Value width = arguments.take_or("width", 4);
  const std::string indention = indention_of(width);
  const bool first = truth(arguments.take_or("first", false)),
             blank = truth(arguments.take_or("blank", false));
  std::string result;
  bool is_first = true;
  for (const std::string& line : split_lines(*text + "\n", false)) {
    if (!is_first) result += '\n';
    if (is_first ? first : blank || !line.empty()) result += indention;
    result += line;
    is_first = false;
    check_size(result.size());
  }
  return result;
}

// Reads a text as Python's float() and int() do.
template <typename Number>
std::optional<Number> parsed(std::string_view text) {
  const std::string stripped = strip(text);
  const char *begin = stripped.data() + stripped.starts_with('+'), *end = stripped.data() + stripped.size();
  Number number{};
  const auto [last, error] = std::from_chars(begin, end, number);
  return error == std::errc{} && last == end ? std::optional(number) : std::nullopt;
}

Value to_float(const Value& value, Arguments& arguments, Frame&) {
  if (const auto* undefined = value.as<Undefined>()) throw TemplateError(undefined->reason);
  const Value otherwise = arguments.take_or("default", 0.0);
  const auto* text = value.as<std::string>();
  const std::optional<double> number = text ? parsed<double>(*text) : value.real();
  return number ? Value(*number) : otherwise;
}

Value to_int(const Value& value, Arguments& arguments, Frame& frame) {
  const Value otherwise = arguments.take_or("default", 0);
  if (const auto number = value.whole()) return *number;
  if (const auto* text = value.as<std::string>())
    if (const auto number = parsed<int64_t>(*text)) return *number;
  Arguments none;
  none.named = {{"default", None{}}};
  const auto number = to_float(value, none, frame).real();
  constexpr double limit = 9.2e18;
  return number && std::abs(*number) < limit ? Value(static_cast<int64_t>(*number)) : otherwise;
}

Value tojson(const Value& value, Arguments& arguments, Frame&) {
  JsonStyle style;
  style.ascii = truth(arguments.take_or("ensure_ascii", false));
  if (const Value indent = arguments.take_or("indent", None{}); !indent.is<None>()) {
    style.indent = indention_of(indent);
    style.item_separator.pop_back();  // no space before the end of a line
  }
  if (const Value separators = arguments.take_or("separators", None{}); !separators.is<None>()) {
    const Items both = items_of(separators);
    if (both.size() != 2) throw TemplateError("tojson takes two separators");
    style.item_separator = text_of(both[0]);
    style.key_separator = text_of(both[1]);
  }
  style.sorted = truth(arguments.take_or("sort_keys", false));
  return json_of(value, style);
}

Value trim(const Value& value, Arguments& arguments, Frame&) {
  const Value chars = arguments.take_or("chars", None{});
  if (chars.is<None>()) return strip(text_of(value));
  return strip(text_of(value), text_of(chars));
}

Value replaced(const Value& value, Arguments& arguments, Frame&) {
  const std::string old = text_of(arguments.need("old")), fresh = text_of(arguments.need("new"));
  const Value count = arguments.take_or("count", None{});
  return replace(text_of(value), old, fresh, count.is<None>() ? -1 : need_whole(count, "count"));
}

Value format(const Value& value, Arguments& arguments, Frame&) {
  const Arguments values = std::exchange(arguments, {});
  if (!values.positional.empty() && !values.named.empty())
    throw TemplateError("format takes values in order or by name, not both");
  return percent_format(text_of(value), values.named.empty() ? Value(Sequence::Kind::tuple, values.positional)
                                                             : Value(values.named));
}

// Jinja's title, not Python's: words begin after white space, hyphens and opening brackets.
Value titled(const Value& value, Arguments&, Frame&) {
  std::u32string characters = code_points(lower(text_of(value)));
  std::string text;
  bool begins = true;
  for (const char32_t c : characters) {
    text += begins ? upper(utf8({&c, 1})) : utf8({&c, 1});
    begins = is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  }
  return text;
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

Value length_of(const Value& value, Arguments&, Frame&) { return length(value); }

constexpr NamedFilter filters[] = {
    {"capitalize", [](const Value& v, Arguments&, Frame&) -> Value { return capitalize(text_of(v)); }},
    {"count", length_of},
    {"d", default_to},
    {"default", default_to},
    {"dictsort", dictsort},
    {"first", first},
    {"float", to_float},
    {"format", format},
    {"indent", indent},
    {"int", to_int},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length_of},
    {"list", [](const Value& v, Arguments&, Frame&) { return list_of(items_of(v)); }},
    {"lower", [](const Value& v, Arguments&, Frame&) -> Value { return lower(text_of(v)); }},
    {"map", map},
    {"max", [](const Value& v, Arguments& a, Frame&) { return extreme(v, a, true); }},
    {"min", [](const Value& v, Arguments& a, Frame&) { return extreme(v, a, false); }},
    {"reject", [](const Value& v, Arguments& a, Frame&) { return chosen(v, a, false, false); }},
    {"rejectattr", [](const Value& v, Arguments& a, Frame&) { return chosen(v, a, true, false); }},
    {"replace", replaced},
    {"reverse", reverse},
    {"safe", [](const Value& v, Arguments&, Frame&) -> Value { return text_of(v); }},
    {"select", [](const Value& v, Arguments& a, Frame&) { return chosen(v, a, false, true); }},
    {"selectattr", [](const Value& v, Arguments& a, Frame&) { return chosen(v, a, true, true); }},
    {"sort", sort},
    {"string", [](const Value& v, Arguments&, Frame&) -> Value { return text_of(v); }},
    {"title", titled},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", [](const Value& v, Arguments&, Frame&) -> Value { return upper(text_of(v)); }},
};

}  // namespace

Filter filter_named(std::string_view name) {
  const auto* found = std::ranges::find(filters, name, &NamedFilter::name);
  if (found == std::end(filters)) throw TemplateError(fmt::format("the filter {} is not supported", name));
  return found->filter;
}

}  // namespace maniple::jinja
