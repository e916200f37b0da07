#include <runtime/chat/text.hpp>
#include <runtime/chat/value.hpp>
#include <runtime/text/utf8.hpp>

#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace maniple::jinja {
namespace {

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  constexpr uint32_t hidden = U_GC_C_MASK | U_GC_Z_MASK;
  return c == ' ' || !(U_GET_GC_MASK(static_cast<UChar32>(c)) & hidden);
}

}  // namespace

bool is_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) || (c >= 0x1C && c <= 0x1F); }

std::u32string code_points(std::string_view text) {
  std::u32string characters;
  for (size_t position = 0; position < text.size();) characters += next_code_point(text, position);
  return characters;
}

std::string utf8(std::u32string_view characters) {
  std::string text;
  for (const char32_t character : characters) append_utf8(text, character);
  return text;
}

std::string strip(std::string_view text, std::optional<std::string_view> chars, Side side) {
  const std::u32string characters = code_points(text);
  const std::u32string removed = code_points(chars.value_or(""));
  const auto stays = [&](char32_t c) { return chars ? removed.find(c) == removed.npos : !is_space(c); };
  auto begin = characters.begin(), end = characters.end();
  if (side != Side::right) begin = std::find_if(begin, end, stays);
  if (side != Side::left)
    while (end > begin && !stays(*(end - 1))) --end;
  return utf8({begin, end});
}

std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t limit) {
  if (separator.empty()) throw TemplateError("empty separator");
  std::vector<std::string> pieces;
  for (size_t at; limit != 0 && (at = text.find(separator)) != text.npos; --limit) {
    pieces.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  pieces.emplace_back(text);
  return pieces;
}

std::vector<std::string> split_at_spaces(std::string_view text, int64_t limit) {
  const std::u32string characters = code_points(text);
  std::vector<std::string> pieces;
  for (auto at = characters.begin();; --limit) {
    const auto begin = std::find_if_not(at, characters.end(), is_space);
    if (begin == characters.end()) return pieces;
    at = limit == 0 ? characters.end() : std::find_if(begin, characters.end(), is_space);
    pieces.push_back(utf8({begin, at}));
  }
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  const std::u32string characters = code_points(text);
  std::vector<std::string> lines;
  for (auto begin = characters.begin(); begin != characters.end();) {
    const auto end = std::find_if(begin, characters.end(), is_line_end);
    auto next = end == characters.end() ? end : end + 1;
    if (next != end && *end == '\r' && next != characters.end() && *next == '\n') ++next;
    lines.push_back(utf8({begin, keep_ends ? next : end}));
    begin = next;
  }
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view fresh, int64_t limit) {
  std::string result;
  for (; limit != 0 && !(old.empty() && text.empty()); --limit) {
    const size_t at = text.find(old);
    if (at == text.npos) break;
    size_t taken = old.size();
    if (old.empty()) taken = character_at(text, 0).size();  // an empty one is found before each character
    result.append(text, 0, at).append(fresh).append(text, at, old.empty() ? taken : 0);
    check_size(result.size());
    text.remove_prefix(at + taken);
  }
  if (old.empty() && text.empty() && limit != 0) result += fresh;
  return result.append(text);
}

std::string upper(std::string_view text) {
  std::string result;
  return icu::UnicodeString::fromUTF8(text).toUpper(icu::Locale::getRoot()).toUTF8String(result);
}

std::string lower(std::string_view text) {
  std::string result;
  return icu::UnicodeString::fromUTF8(text).toLower(icu::Locale::getRoot()).toUTF8String(result);
}

std::string capitalize(std::string_view text) {
  std::u32string characters = code_points(lower(text));
  if (!characters.empty()) characters[0] = u_totitle(static_cast<UChar32>(characters[0]));
  return utf8(characters);
}

std::string title(std::string_view text) {
  std::u32string characters = code_points(text);
  bool in_word = false;
  for (char32_t& character : characters) {
    const auto c = static_cast<UChar32>(character);
    character = in_word ? u_tolower(c) : u_totitle(c);
    in_word = u_hasBinaryProperty(c, UCHAR_CASED);
  }
  return utf8(characters);
}

std::string python_quoted(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  constexpr std::string_view plain = "\n\r\t", letters = "nrt";
  std::string result(1, quote);
  for (const char32_t c : code_points(text)) {
    if (const size_t at = c < 0x80 ? plain.find(static_cast<char>(c)) : plain.npos; at != plain.npos) {
      (result += '\\') += letters[at];
    } else if (!is_printable(c)) {
      const auto code = static_cast<uint32_t>(c);
      result += c < 0x100     ? fmt::format("\\x{:02x}", code)
                : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    } else {
      if (c == '\\' || c == static_cast<unsigned char>(quote)) result += '\\';
      append_utf8(result, c);
    }
  }
  return result + quote;
}

std::string json_quoted(std::string_view text, bool ascii) {
  return nlohmann::json(text).dump(-1, ' ', ascii, nlohmann::json::error_handler_t::replace);
}

std::string float_text(double number) {
  std::string text = fmt::format("{}", number);
  if (std::isfinite(number) && text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

}  // namespace maniple::jinja
