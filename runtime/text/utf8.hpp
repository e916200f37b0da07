// UTF-8: validation, code points, and the repair of broken bytes as Rust's String::from_utf8_lossy does it
// (one U+FFFD for each maximal part of a broken sequence: The Unicode Standard, section 3.9, table 3-7).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace maniple {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

// Whether a byte goes on with a character that an earlier one began.
constexpr bool continues_character(char byte) { return (byte & 0xC0) == 0x80; }
// Of a valid text.
size_t character_count(std::string_view text);

// The bytes of the character that starts at text[position]. The text must be valid.
std::string_view character_at(std::string_view text, size_t position);

// The offset of the first byte that is not valid UTF-8; npos if there is none.
size_t first_invalid_utf8(std::string_view text);

// Returns the code point at text[position] and moves position past it. The text must be valid.
char32_t next_code_point(std::string_view text, size_t& position);
void append_utf8(std::string& text, char32_t code_point);

// Bytes in, whole characters out; holds back bytes that may still become a character.
class LossyUtf8 {
 public:
  std::string push(std::string_view bytes);
  std::string finish();

 private:
  std::string pending_;  // at most three bytes between calls
};

}  // namespace maniple
