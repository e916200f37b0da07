#include <runtime/chat/program.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple::jinja {
namespace {

template <typename T>
bool is_a(const Value& value, Arguments&) {
  return value.is<T>();
}

bool is_iterable(const Value& value) {
  return value.is<Undefined>() || value.is<std::string>() || value.is<Sequence>() || value.is<Dict>();
}

// True for values that have a length and take a key.
bool is_sequence(const Value& value, Arguments&) {
  const auto* sequence = value.as<Sequence>();
  return is_iterable(value) && (!sequence || sequence->kind <= Sequence::Kind::range);
}

bool is_exactly(const Value& value, bool expected) { return value.is<bool>() && truth(value) == expected; }

bool same_as(const Value& value, Arguments& arguments) {
  const Value other = arguments.need("other");
  if (!other.is<bool>() && !other.is<None>())
    throw TemplateError("sameas is supported for true, false and none");
  return value.type() == other.type() && equal(value, other);
}

bool equal_to(const Value& value, Arguments& a) { return equal(value, a.need("other")); }
bool not_equal_to(const Value& value, Arguments& a) { return !equal(value, a.need("other")); }
struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest tests[] = {
    {"boolean", is_a<bool>},
    {"defined", [](const Value& v, Arguments&) { return !v.is<Undefined>(); }},
    {"even", [](const Value& v, Arguments&) { return equal(binary("%", v, 2), 0); }},
    {"false", [](const Value& v, Arguments&) { return is_exactly(v, false); }},
    {"float", is_a<double>},
    {"in", [](const Value& v, Arguments& a) { return contains(a.need("seq"), v); }},
    {"integer", is_a<int64_t>},
    {"iterable", [](const Value& v, Arguments&) { return is_iterable(v); }},
    {"mapping", is_a<Dict>},
    {"none", is_a<None>},
    {"number", [](const Value& v, Arguments&) { return v.real().has_value(); }},
    {"odd", [](const Value& v, Arguments&) { return equal(binary("%", v, 2), 1); }},
    {"sameas", same_as},
    {"sequence", is_sequence},
    {"string", is_a<std::string>},
    {"true", [](const Value& v, Arguments&) { return is_exactly(v, true); }},
    {"undefined", is_a<Undefined>},
    {"eq", equal_to},
    {"equalto", equal_to},
    {"ne", not_equal_to},
};

}  // namespace

Test test_named(std::string_view name) {
  const auto* found = std::ranges::find(tests, name, &NamedTest::name);
  if (found == std::end(tests)) throw TemplateError(fmt::format("the test {} is not supported", name));
  return found->test;
}

}  // namespace maniple::jinja
