// Methods of texts and dictionaries, and the global functions of every template.
#include <runtime/chat/program.hpp>
#include <runtime/chat/text.hpp>
#include <runtime/text/utf8.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

namespace maniple::jinja {
namespace {

const std::string& need_text(const Value& value, std::string_view what) {
  if (const auto* text = value.as<std::string>()) return *text;
  throw TemplateError(fmt::format("{} must be a text, not {}", what, value.type()));
}

int64_t whole_or(const std::optional<Value>& value, int64_t otherwise) {
  if (!value) return otherwise;
  if (const auto number = value->whole()) return *number;
  throw TemplateError(fmt::format("an integer is needed, not {}", value->type()));
}

Value texts(const std::vector<std::string>& parts) {
  Items items;
  for (const std::string& part : parts) items.emplace_back(part);
  return list_of(std::move(items));
}

Value strip_method(const std::string& text, Arguments& arguments, Side side) {
  const Value chars = arguments.take_or("chars", None{});
  if (chars.is<None>()) return strip(text, {}, side);
  return strip(text, need_text(chars, "what to strip"), side);
}

Value split_method(const std::string& text, Arguments& arguments) {
  const Value separator = arguments.take_or("sep", None{});
  const int64_t limit = whole_or(arguments.take("maxsplit"), -1);
  if (separator.is<None>()) return texts(split_at_spaces(text, limit));
  return texts(split(text, need_text(separator, "a separator"), limit));
}

Value affix_method(Arguments& arguments, const std::function<bool(const std::string&)>& has) {
  const Value affix = arguments.need("prefix");
  const auto* choices = affix.as<Sequence>();
  if (!choices || choices->kind != Sequence::Kind::tuple) return has(need_text(affix, "a prefix or suffix"));
  return std::ranges::any_of(choices->items,
                             [&](const Value& each) { return has(need_text(each, "a prefix or suffix")); });
}

// find and rfind: where the first or the last one begins.
Value position_of(const std::string& text, Arguments& arguments, bool last) {
  const std::string part = need_text(arguments.need("sub"), "what to find");
  const size_t at = last ? text.rfind(part) : text.find(part);
  return at == text.npos ? Value(-1) : Value(character_count(std::string_view(text).substr(0, at)));
}

Value join_method(const std::string& separator, Arguments& arguments) {
  std::string text;
  bool is_first = true;
  for (const Value& item : items_of(arguments.need("iterable"))) {
    if (!std::exchange(is_first, false)) text += separator;
    text += need_text(item, "what is joined");
    check_size(text.size());
  }
  return text;
}

Value replace_method(const std::string& text, Arguments& arguments) {
  const Value old = arguments.need("old"), fresh = arguments.need("new");
  return replace(text, need_text(old, "the old text"), need_text(fresh, "the new text"),
                 whole_or(arguments.take("count"), -1));
}

struct TextMethod {
  std::string_view name;
  Value (*call)(const std::string&, Arguments&);
};

constexpr TextMethod text_methods[] = {
    {"capitalize", [](const std::string& s, Arguments&) -> Value { return capitalize(s); }},
    {"endswith",
     [](const std::string& s, Arguments& a) {
       return affix_method(a, [&](const auto& end) { return s.ends_with(end); });
     }},
    {"find", [](const std::string& s, Arguments& a) { return position_of(s, a, false); }},
    {"join", join_method},
    {"lower", [](const std::string& s, Arguments&) -> Value { return lower(s); }},
    {"lstrip", [](const std::string& s, Arguments& a) { return strip_method(s, a, Side::left); }},
    {"replace", replace_method},
    {"rfind", [](const std::string& s, Arguments& a) { return position_of(s, a, true); }},
    {"rstrip", [](const std::string& s, Arguments& a) { return strip_method(s, a, Side::right); }},
    {"split", split_method},
    {"splitlines", [](const std::string& s,
                      Arguments& a) { return texts(split_lines(s, truth(a.take_or("keepends", false)))); }},
    {"startswith",
     [](const std::string& s, Arguments& a) {
       return affix_method(a, [&](const auto& start) { return s.starts_with(start); });
     }},
    {"strip", [](const std::string& s, Arguments& a) { return strip_method(s, a, Side::both); }},
    {"title", [](const std::string& s, Arguments&) -> Value { return title(s); }},
    {"upper", [](const std::string& s, Arguments&) -> Value { return upper(s); }},
};

std::optional<Value> dict_method(const Value& value, std::string_view name) {
  if (name == "get")
    return Function{[value](Arguments& arguments, Frame&) {
      const Value key = arguments.need("key"), otherwise = arguments.take_or("default", None{});
      const auto* text = key.as<std::string>();
      const Value* found = text ? find(value.as<Dict>()->entries, *text) : nullptr;
      return found ? *found : otherwise;
    }};
  if (name != "keys" && name != "values" && name != "items") return std::nullopt;
  return Function{[value, name](Arguments&, Frame&) -> Value {
    const Entries& entries = value.as<Dict>()->entries;
    Items items = name == "items" ? pairs_of(entries) : Items{};
    if (name != "items")
      for (const auto& [key, entry] : entries) items.push_back(name == "keys" ? Value(key) : entry);
    return {Sequence::Kind::view, std::move(items)};
  }};
}

std::optional<Value> method(const Value& value, const std::string& name) {
  if (value.is<Dict>()) return dict_method(value, name);
  const auto* found = std::ranges::find(text_methods, name, &TextMethod::name);
  if (!value.is<std::string>() || found == std::end(text_methods)) return std::nullopt;
  return Function{[value, found](Arguments& arguments, Frame&) {
    return found->call(*value.as<std::string>(), arguments);
  }};
}

Value range(Arguments& arguments, Frame&) {
  constexpr int64_t most = 100'000;  // as in Jinja's sandbox
  int64_t start = whole_or(arguments.need("stop"), 0);
  const std::optional<Value> stop = arguments.take("stop"), step = arguments.take("step");
  const int64_t end = stop ? whole_or(stop, 0) : std::exchange(start, 0), stride = whole_or(step, 1);
  if (stride == 0) throw TemplateError("the step of range must not be zero");
  Items items;
  for (int64_t i = start; stride > 0 ? i < end : i > end;) {
    if (items.size() == most) throw TemplateError(fmt::format("range gives more than {} items", most));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  return {Sequence::Kind::range, std::move(items)};
}

// dict and namespace take a dictionary, and names with values.
Entries taken_entries(Arguments& arguments) {
  Entries entries;
  if (const auto base = arguments.positional.empty() ? std::nullopt : arguments.take("base")) {
    if (!base->is<Dict>()) throw TemplateError(fmt::format("a dictionary is needed, not {}", base->type()));
    entries = base->as<Dict>()->entries;
  }
  for (auto& [name, value] : std::exchange(arguments.named, {})) assign(entries, name, value);
  return entries;
}

Value raise_exception(Arguments& arguments, Frame&) {
  throw TemplateError("refused by the template: " + text_of(arguments.need("message")));
}

Value formatted_time(std::time_t now, const std::string& format) {
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[1024];
  const size_t size = std::strftime(text, sizeof text, format.c_str(), &local);
  if (size == 0 && !format.empty()) throw TemplateError("strftime_now gives nothing for this format");
  return std::string(text, size);
}

}  // namespace

Value attribute(const Value& value, const std::string& name) {
  if (const auto* undefined = value.as<Undefined>()) throw TemplateError(undefined->reason);
  if (auto found = method(value, name)) return *found;
  const auto* dict = value.as<Dict>();
  const auto* attributes = value.as<Namespace>();
  const auto* function = value.as<Function>();
  const Value* found = dict         ? find(dict->entries, name)
                       : attributes ? find(attributes->entries, name)
                       : function   ? find(function->attributes, name)
                                    : nullptr;
  return found ? *found
               : Undefined{
                     fmt::format("{} has no attribute {}, or none that is supported", value.type(), name)};
}

std::map<std::string, Value, std::less<>> globals(int64_t now) {
  return {{"range", Function{range}},
          {"raise_exception", Function{raise_exception}},
          {"dict", Function{[](Arguments& arguments, Frame&) -> Value { return taken_entries(arguments); }}},
          {"namespace", Function{[](Arguments& arguments, Frame& frame) -> Value {
             return frame.run.make_namespace(taken_entries(arguments));
           }}},
          {"strftime_now", Function{[now](Arguments& arguments, Frame&) {
             return formatted_time(now, text_of(arguments.need("format")));
           }}}};
}

}  // namespace maniple::jinja
