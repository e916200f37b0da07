#include <launch/json_line.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/tokenizer/utf8.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace maniple {

using nlohmann::json;

namespace {

// The library's message counts lines within the text that it was given, which is always one.
void explain_syntax(std::string_view text, std::string_view where) {
  constexpr size_t longest = 200;
  try {
    std::ignore = json::parse(text);
  } catch (const json::parse_error& error) {
    const std::string_view message = error.what();
    refuse_line(where,
                fmt::format("not valid JSON: {}",
                            message.substr(std::min(message.size(), message.find("column ")), longest)));
  }
}

}  // namespace

void refuse_line(std::string_view where, const std::string& problem) {
  fail(ExitCode::input, "{}: {}", where, problem);
}

void check_utf8(std::string_view text, std::string_view where) {
  if (const size_t at = first_invalid_utf8(text); at != std::string_view::npos)
    refuse_line(where, fmt::format("byte {} is not valid UTF-8; convert the text to UTF-8", at + 1));
}

namespace {

template <typename Parse>
auto parse_line(Parse parse, std::string_view text, std::string_view where) {
  check_utf8(text, where);
  try {
    return parse(text, where);
  } catch (const Error&) {
    explain_syntax(text, where);
    throw;
  }
}

}  // namespace

json parse_json_line(std::string_view text, std::string_view where) {
  return parse_line(parse_json, text, where);
}

nlohmann::ordered_json parse_ordered_json_line(std::string_view text, std::string_view where) {
  return parse_line(parse_ordered_json, text, where);
}

}  // namespace maniple
