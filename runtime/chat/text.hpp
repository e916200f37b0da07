// Python's str methods on UTF-8. Characters are code points; white space and case follow Unicode.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maniple::jinja {

std::u32string code_points(std::string_view text);
std::string utf8(std::u32string_view characters);
bool is_space(char32_t character);

enum class Side { left, right, both };
// chars: the characters to remove; absent: white space.
std::string strip(std::string_view text, std::optional<std::string_view> chars = {}, Side side = Side::both);
// limit: the most cuts; -1: no limit.
std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string> split_at_spaces(std::string_view text, int64_t limit);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
std::string replace(std::string_view text, std::string_view old, std::string_view fresh, int64_t limit);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

std::string python_quoted(std::string_view text);            // as repr()
std::string json_quoted(std::string_view text, bool ascii);  // as json.dumps()
std::string float_text(double number);                       // as repr(): the shortest that reads back

}  // namespace maniple::jinja
